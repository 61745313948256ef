// Groups are taken in order. What is read outside of its group, and every output, is stored; the rest lives inside its
// kernel. Extern calls and sorts stay equations: a kernel remembers how many of them run before it.
#include "schedule/tile.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "schedule/build_internal.h"

namespace magneto::schedule {

using namespace loop;

namespace {

Statement statement(Statement::Kind kind) {
  Statement s;
  s.kind = kind;
  return s;
}

class Tiler {
 public:
  Tiler(Program& program, const Shape& shape)
      : program_(program), uses_(program), shop_{program, uses_, weights_, shape, find_stored()} {}

  void run() {
    const std::vector<Equation> equations = std::move(program_.equations);
    program_.equations.clear();
    for (size_t n = 0; n < equations.size();) {
      std::vector<const Equation*> group = {&equations[n]};
      while (++n < equations.size() && equations[n].joined) group.push_back(&equations[n]);
      lower(group);
    }
  }

 private:
  std::vector<bool> find_stored() {
    std::vector<bool> stored(program_.buffers());
    std::vector<size_t> group_of(program_.buffers(), SIZE_MAX);
    for (size_t b = 0; b < program_.buffers(); ++b) stored[b] = program_.buffer(BufferId(b)).role == Role::kOut;
    size_t group = 0;
    for (const Equation& e : program_.equations) {
      group += !e.joined;
      for (const BufferId id : e.reads) stored[id.index()] = true;
      if (e.base.valid()) stored[e.base.index()] = true;
      for_each_load(program_, e, [&](const Term& t) {
        if (group_of[t.id] != group) stored[t.id] = true;
      });
      if (e.target.valid()) group_of[e.target.index()] = group;
    }
    return stored;
  }

  void lower(const std::vector<const Equation*>& group) {
    const Equation& e = *group.front();
    switch (e.kind) {
      case Equation::Kind::kMap: {
        std::vector<Space> spaces;
        for (const Equation* member : group) spaces.push_back(space_of(program_, uses_, *member));
        // rows, columns, elements, values of rows: in this order each one finds the space that holds it
        std::stable_sort(spaces.begin(), spaces.end(), [](const Space& a, const Space& b) {
          const auto rank = [](const Space& s) {
            return std::make_tuple(s.inner.empty(), s.columns, -static_cast<long>(s.outer.size()));
          };
          return rank(a) < rank(b);
        });
        Space space = spaces.front();
        for (size_t k = 1; k < spaces.size(); ++k)
          if (const auto both = join(program_, shop_.shape, space, spaces[k])) space = *both;
        return add(build(shop_, group, space));
      }
      case Equation::Kind::kScan:
        return scan(e);
      case Equation::Kind::kScatter:
        return scatter(e);
      case Equation::Kind::kSort:
        return sort(e);
      case Equation::Kind::kExtern:
        program_.equations.push_back(e);
        return;
    }
  }

  void add(Kernel kernel) {
    kernel.after = program_.equations.size();
    program_.kernels.push_back(std::move(kernel));
  }

  /// An equation of a flat space as a kernel of its own.
  void flat(const Equation& e) {
    shop_.stored.resize(program_.buffers());
    shop_.stored[e.target.index()] = true;
    uses_.extend(program_);
    add(build(shop_, {&e}, space_of(program_, uses_, e)));
  }

  Equation map_of(BufferId target, const std::function<TermId(const std::vector<TermId>&)>& value) {
    Equation e;
    e.target = target;
    size_t next = 0, ones = 0;
    const types::Sizes sizes = program_.buffer(target).type.sizes;
    std::vector<TermId> index;
    for (const types::Expr& size : sizes) {
      e.axes.push_back(is_one(size) ? program_.axis(base::concat("z", ones++)) : canonical_axis(program_, next++));
      index.push_back(is_one(size) ? program_.constant_int(0, Dtype::kI64) : program_.axis_value(e.axes.back()));
    }
    e.value = value(index);
    return e;
  }

  void scan(const Equation& e) {
    Kernel k;
    k.name = base::concat("k_", program_.buffer(e.target).name);
    const TermId zero = program_.constant_int(0, Dtype::kI64);
    const types::Sizes sizes = program_.buffer(e.target).type.sizes;
    Statement phase = statement(Statement::Kind::kLoop);
    phase.loop.emplace_back();
    std::vector<TermId> index;
    for (size_t d = 0; d < e.axes.size(); ++d) {
      const Range range{e.axes[d], zero, program_.size(sizes[d])};
      index.push_back(program_.axis_value(e.axes[d]));
      (e.axes[d] == e.along ? phase.loop.front().ranges : k.outer).push_back(range);
    }
    Statement fold = statement(Statement::Kind::kScan);
    fold.fold = e.fold;
    fold.value = e.value;
    if (gives_position(*e.fold)) fold.position = program_.axis_value(e.along);
    fold.local = program_.add_local("so_far", result_of(*e.fold, program_.term(e.value).dtype));
    Statement store = statement(Statement::Kind::kStore);
    store.buffer = e.target;
    store.index = index;
    store.value = program_.local(fold.local);
    if (const Dtype kept = program_.buffer(e.target).type.dtype; program_.term(store.value).dtype != kept)
      store.value = program_.cast(kept, store.value);
    phase.loop.front().body = {fold, store};
    k.body.push_back(std::move(phase));
    add(std::move(k));
  }

  /// First every element: the base, or zero. Then the updates, one after the other; axes that are an index by
  /// themselves never meet, so they are points of the outer space.
  void scatter(const Equation& e) {
    const Dtype dtype = program_.buffer(e.target).type.dtype;
    flat(map_of(e.target, [&](const std::vector<TermId>& index) {
      return e.base.valid() ? program_.load(e.base, index) : program_.constant_int(0, dtype);
    }));
    program_.kernels.back().name += "_base";
    Kernel k;
    k.name = base::concat("k_", program_.buffer(e.target).name);
    Statement phase = statement(Statement::Kind::kLoop);
    phase.loop.emplace_back();
    if (shop_.shape.on_gpu()) return add(spread_scatter(e, std::move(k)));
    for (const Range& r : e.over) {
      const bool alone = std::find(e.index.begin(), e.index.end(), program_.axis_value(r.axis)) != e.index.end();
      const bool fixed = program_.as_size(r.begin) && program_.as_size(r.end);
      (alone && fixed ? k.outer : phase.loop.front().ranges).push_back(r);
    }
    if (phase.loop.front().ranges.empty()) {  // all axes are indices: the last one is walked
      phase.loop.front().ranges.push_back(k.outer.back());
      k.outer.pop_back();
    }
    Statement update = statement(e.fold ? Statement::Kind::kUpdate : Statement::Kind::kStore);
    update.buffer = e.target;
    update.index = e.index;
    update.fold = e.fold;
    update.overwrites = !e.fold;
    update.value = e.value;
    phase.loop.front().body = {update};
    k.body.push_back(std::move(phase));
    add(std::move(k));
  }

  /// On a GPU updates are atomic, so all of them may be made at a time. Which of two that meet is the last one is then
  /// open, as it is in eager torch.
  Kernel spread_scatter(const Equation& e, Kernel k) {
    Statement phase = statement(Statement::Kind::kLoop);
    phase.loop.emplace_back();
    for (const Range& r : e.over) {
      const bool fixed = program_.as_size(r.begin) && program_.as_size(r.end);
      (fixed && &r != &e.over.back() ? k.outer : phase.loop.front().ranges).push_back(r);
    }
    Range& last = phase.loop.front().ranges.back();
    const auto begin = program_.as_size(last.begin), end = program_.as_size(last.end);
    const int64_t block = shop_.shape.flat_threads;
    if (k.outer.empty() && begin && end && *begin == types::Expr(0)) {
      const AxisId axis = program_.axis("b");
      const TermId width = program_.constant_int(block, Dtype::kI64);
      k.outer.push_back({axis, last.begin, program_.size(types::Expr::ceil_div(*end, block))});
      last.begin = program_.binary(Op::kMul, program_.axis_value(axis), width);
      last.end = program_.binary(Op::kMin, program_.binary(Op::kAdd, last.begin, width), last.end);
    }
    k.threads = 32;
    while (k.threads < block && (!begin || !end || k.threads < (*end - *begin).value_or(block))) k.threads *= 2;
    Statement update = statement(e.fold ? Statement::Kind::kUpdate : Statement::Kind::kStore);
    update.buffer = e.target;
    update.index = e.index;
    update.fold = e.fold;
    update.overwrites = !e.fold;
    update.value = e.value;
    update.atomic = e.fold.has_value();
    phase.loop.front().body = {update};
    k.body.push_back(std::move(phase));
    return k;
  }

  /// The values that are sorted are put into memory first; the sort itself is the caller's.
  void sort(Equation e) {
    const Term t = program_.term(e.value);
    std::vector<TermId> index;
    for (const AxisId axis : e.axes) index.push_back(program_.axis_value(axis));
    if (t.op != Op::kLoad || t.operands != index) {
      types::TensorType type = program_.buffer(e.target).type;
      type.strides = types::contiguous_strides(type.sizes);
      type.offset = 0;
      Equation values = e;
      values.kind = Equation::Kind::kMap;
      values.positions = {};
      values.target = program_.add_buffer(fresh_name(program_, "unsorted"), type, Role::kTemp);
      // sort keeps axes of one element, maps do not
      size_t next = 0, ones = 0;
      std::unordered_map<TermId, TermId> names;
      for (size_t d = 0; d < e.axes.size(); ++d) {
        const TermId old = program_.axis_value(e.axes[d]);
        const bool one = is_one(type.sizes[d]);
        values.axes[d] = one ? program_.axis(base::concat("z", ones++)) : canonical_axis(program_, next++);
        names[old] = one ? program_.constant_int(0, Dtype::kI64) : program_.axis_value(values.axes[d]);
      }
      Rewrite rename(program_, [&](TermId id) -> std::optional<TermId> {
        const auto found = names.find(id);
        return found == names.end() ? std::nullopt : std::optional(found->second);
      });
      values.value = rename(e.value);
      flat(values);
      e.value = program_.load(values.target, index);
    }
    program_.equations.push_back(e);
  }

  Program& program_;
  Uses uses_;
  Weights weights_;
  Workshop shop_;
};

}  // namespace

void tile(Program& program, const Shape& shape) { Tiler(program, shape).run(); }

Shape gpu_shape() {
  Shape shape;
  shape.vector = 4;
  shape.columns = 8;
  shape.block = 1024;
  shape.few_points = 128;
  shape.part = 16384;
  shape.threads = 1024;
  shape.flat_threads = 256;
  shape.row_bytes = 200 << 10;
  return shape;
}

}  // namespace magneto::schedule
