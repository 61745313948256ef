// A kernel is written as a row of words in which buffers, values and axes are numbers in the order of their first use;
// equal rows are equal kernels. Terms are numbered, too, so a term that is used twice is written once and the row is as
// long as the kernel.
#include "schedule/share.h"

#include <string>
#include <unordered_map>

#include "base/text.h"

namespace magneto::schedule {

using namespace loop;

namespace {

class Writer {
 public:
  explicit Writer(const Program& program) : program_(program) {}

  std::string text;
  std::vector<BufferId> buffers;

  void kernel(const Kernel& k) {
    put("kernel", k.threads);
    ranges(k.outer);
    for (const BufferId row : k.rows) buffer(row);
    for (const Statement& s : k.once) statement(s);
    put("body");
    for (const Statement& s : k.body) statement(s);
  }

 private:
  template <class... Pieces>
  void put(const Pieces&... pieces) {
    ((text += base::concat(pieces), text += ' '), ...);
  }
  template <class Id>
  static size_t number(std::unordered_map<Id, size_t>& known, Id id) {
    return known.try_emplace(id, known.size()).first->second;
  }

  size_t buffer(BufferId id) {
    const size_t before = buffer_of_.size(), n = number(buffer_of_, id);
    if (n == before) {
      const Buffer& b = program_.buffer(id);
      put("buffer", to_string(b.type), b.role == Role::kRow ? "row" : "memory");
      if (b.role != Role::kRow) buffers.push_back(id);
    }
    return n;
  }

  size_t term(TermId id) {
    if (const auto known = term_of_.find(id); known != term_of_.end()) return known->second;
    const Term& t = program_.term(id);
    std::string operands;
    for (const TermId operand : t.operands) operands += base::concat(term(operand), ",");
    const bool load = t.op == Op::kLoad || t.op == Op::kGuarded;
    const size_t from = load ? buffer(BufferId(t.id)) : 0;
    put(static_cast<int>(t.op), static_cast<int>(t.dtype), operands);
    if (load) put(from);
    if (t.op == Op::kAxis) put(number(axis_of_, AxisId(t.id)));
    if (t.op == Op::kLocal) put(number(local_of_, LocalId(t.id)));
    if (t.op == Op::kSize) put(to_string(program_.size_of(t)));
    if (t.op == Op::kConstant) {
      const Number value = program_.number(t);
      put(std::to_string(value.whole));
      text.append(reinterpret_cast<const char*>(&value.real), sizeof value.real);
    }
    const size_t n = term_of_.size();
    return term_of_[id] = n;
  }

  void ranges(const std::vector<Range>& list) {
    for (const Range& r : list) {
      const size_t begin = term(r.begin), end = term(r.end);
      put("range", number(axis_of_, r.axis), begin, end);
    }
  }

  void statement(const Statement& s) {
    std::string terms;
    for_each_term(s, [&](TermId id) { terms += base::concat(term(id), ","); });
    const size_t into = s.buffer.valid() ? buffer(s.buffer) : 0;
    put("do", static_cast<int>(s.kind), s.fold ? static_cast<int>(*s.fold) : -1, s.atomic ? 1 : 0, terms, into);
    if (s.local.valid()) put(number(local_of_, s.local), static_cast<int>(program_.local_of(s.local).dtype));
    if (s.kind != Statement::Kind::kLoop) return;
    const Loop& l = s.loop.front();
    ranges(l.ranges);
    put("loop", static_cast<int>(l.kind), l.vector, l.unroll, l.accumulators, static_cast<int>(l.tail));
    for (const Statement& inner : l.body) statement(inner);
    put("end");
  }

  const Program& program_;
  std::unordered_map<BufferId, size_t> buffer_of_;
  std::unordered_map<AxisId, size_t> axis_of_;
  std::unordered_map<LocalId, size_t> local_of_;
  std::unordered_map<TermId, size_t> term_of_;
};

}  // namespace

Sharing share(const Program& program) {
  Sharing made;
  std::unordered_map<std::string, size_t> known;
  for (size_t n = 0; n < program.kernels.size(); ++n) {
    Writer writer(program);
    writer.kernel(program.kernels[n]);
    made.same_as.push_back(known.try_emplace(std::move(writer.text), n).first->second);
    made.buffers.push_back(std::move(writer.buffers));
  }
  return made;
}

}  // namespace magneto::schedule
