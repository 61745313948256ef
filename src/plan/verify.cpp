// Everything is found again from the steps: when a buffer is first and last touched, who wrote it before it is read,
// what lies beside it in the arena. Who planned the memory is not asked.
//
// Places that are numbers are kept in order while their buffers live, so that each is compared with its two neighbours
// only. Places that are expressions are slots: one buffer at a time, each as large as its largest buffer, one slot
// after the other; which comes first is guessed from an example and then proved.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/text.h"
#include "plan/plan.h"
#include "types/prove.h"

namespace magneto::plan {

namespace {

using types::Expr;

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan),
        prover_(plan.conditions),
        first_(plan.buffers.size(), SIZE_MAX),
        last_(plan.buffers.size()),
        written_(plan.buffers.size()),
        uses_(plan.buffers.size()) {}

  std::vector<std::string> run() {
    std::set<std::string> names;
    for (const Buffer& b : plan_.buffers) {
      if (!names.insert(b.name).second) say("two buffers are called ", b.name);
      if (b.place != Place::kTemp && !(b.at == Expr(0))) say(b.name, " is not in the arena but has a place in it");
    }
    for (const Step& s : plan_.steps)
      for (const auto* list : {&s.buffers, &s.reads, &s.writes})
        for (const BufferId id : *list)
          if (!id.valid() || id.index() >= plan_.buffers.size()) {
            say("step ", s.name, " names a buffer that does not exist");
            return std::move(broken_);
          }
    for (size_t n = 0; n < plan_.steps.size(); ++n) step(n);
    for (size_t b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].place == Place::kOut && !written_[b])
        say("output ", plan_.buffers[b].name, " is never written");
    arena();
    return std::move(broken_);
  }

 private:
  template <class... Pieces>
  void say(const Pieces&... pieces) {
    broken_.push_back(base::concat(pieces...));
  }

  // ---- steps -------------------------------------------------------------------------------------------------------

  void step(size_t n) {
    const Step& s = plan_.steps[n];
    for (const auto* list : {&s.buffers, &s.reads, &s.writes})
      for (const BufferId id : *list) {
        first_[id.index()] = std::min(first_[id.index()], n);
        last_[id.index()] = n;
      }
    for (const BufferId id : s.reads) {
      const Place place = plan_[id].place;
      if (place != Place::kIn && place != Place::kConstant && !written_[id.index()])
        say(plan_[id].name, " is read by ", s.name, " before it is written");
    }
    for (const BufferId id : s.writes) {
      const Place place = plan_[id].place;
      if (place == Place::kIn || place == Place::kConstant) say(s.name, " writes ", plan_[id].name);
      if (place == Place::kCall && (s.kind != Step::Kind::kCall || written_[id.index()]))
        say(plan_[id].name, " is made by a call, but ", s.name, " writes it, too");
      written_[id.index()] = true;
    }
    if (s.kind == Step::Kind::kRun) return kernel(s);
    if (!s.buffers.empty()) say("call ", s.name, " lists buffers as a kernel does");
    look(s);
    for (const BufferId id : s.writes) {
      Use& use = uses_[id.index()];
      if (use.reads + use.writes > 1)
        say("call ", s.name, " writes ", plan_[id].name, ", which it also has as another argument");
      use = {};
    }
    forget(s);
  }

  struct Use {
    int takes = 0, reads = 0, writes = 0;  ///< how often
  };
  void look(const Step& s) {
    for (const BufferId id : s.buffers) ++uses_[id.index()].takes;
    for (const BufferId id : s.reads) ++uses_[id.index()].reads;
    for (const BufferId id : s.writes) ++uses_[id.index()].writes;
  }
  void forget(const Step& s) {
    for (const auto* list : {&s.buffers, &s.reads, &s.writes})
      for (const BufferId id : *list) uses_[id.index()] = {};
  }

  void kernel(const Step& s) {
    if (s.grain < 1) say("the grain of ", s.name, " is ", s.grain);
    if (s.threads < 0 || s.threads > 1024) say("a block of ", s.name, " has ", s.threads, " threads");
    if (s.threads == 0 && !s.symbols.empty()) say(s.name, " runs on a CPU, where a kernel finds its symbols itself");
    if (s.points.value_or(0) < 0) say(s.name, " has fewer points than none");
    if (s.scratch.value_or(0) < 0) say(s.name, " has scratch memory of fewer bytes than none");
    look(s);
    for (const BufferId id : s.buffers)
      if (const Use& use = uses_[id.index()]; use.reads + use.writes == 0)
        say(s.name, " takes ", plan_[id].name, " and neither reads nor writes it");
    for (const auto* list : {&s.reads, &s.writes})
      for (const BufferId id : *list)
        if (uses_[id.index()].takes == 0) say(s.name, " touches ", plan_[id].name, ", which it does not take");
    forget(s);
    if (s.writes.empty()) say("kernel ", s.name, " writes nothing");
  }

  // ---- the arena ---------------------------------------------------------------------------------------------------

  bool is_multiple(const Expr& e) const { return Expr::mod(e, 64) == Expr(0); }

  void arena() {
    Slot numbers{Expr(0), Expr(0), {}};
    std::vector<BufferId> fixed;
    std::map<size_t, Slot> slots;  // by the first buffer that has the place
    std::unordered_map<Expr, size_t> slot_of;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.place != Place::kTemp || first_[b] == SIZE_MAX) continue;
      if (!is_multiple(buffer.at)) say(buffer.name, " begins at ", to_string(buffer.at), ", no multiple of 64");
      const auto at = buffer.at.constant(), bytes = buffer.bytes.constant();
      if (at && *at < 0) say(buffer.name, " begins before the arena");
      if (at && bytes) {
        if (plan_.arena.is_constant() && *at + *bytes > plan_.arena.value_or(0))
          say(buffer.name, " ends beyond the arena");
        fixed.emplace_back(b);
        numbers.end = std::max(numbers.end.value_or(0), *at + *bytes);
        continue;
      }
      Slot& slot = slots[slot_of.try_emplace(buffer.at, b).first->second];
      slot.at = buffer.at;
      slot.end = slot.users.empty() ? buffer.at + buffer.bytes : Expr::max(slot.end, buffer.at + buffer.bytes);
      slot.users.emplace_back(b);
    }
    no_overlap(fixed);
    std::vector<Slot> list;
    if (!fixed.empty() && !(plan_.arena.is_constant() && slots.empty())) list.push_back(numbers);
    for (auto& [first, slot] : slots) {
      one_at_a_time(slot);
      list.push_back(std::move(slot));
    }
    one_behind_the_other(std::move(list));
  }

  struct Slot {
    Expr at, end;
    std::vector<BufferId> users;
  };

  /// Of buffers whose places are numbers.
  void no_overlap(std::vector<BufferId> list) {
    std::sort(list.begin(), list.end(), [&](BufferId a, BufferId b) { return first_[a.index()] < first_[b.index()]; });
    std::map<int64_t, BufferId> living;  // by where they begin
    std::multimap<size_t, BufferId> ending;
    const auto end = [&](BufferId id) { return plan_[id].at.value_or(0) + plan_[id].bytes.value_or(0); };
    for (const BufferId id : list) {
      const int64_t at = plan_[id].at.value_or(0);
      while (!ending.empty() && ending.begin()->first < first_[id.index()]) {
        living.erase(plan_[ending.begin()->second].at.value_or(0));
        ending.erase(ending.begin());
      }
      if (plan_[id].bytes.value_or(0) <= 0) continue;
      const auto next = living.lower_bound(at);
      if (next != living.end() && next->first < end(id)) overlap(id, next->second);
      if (next != living.begin() && end(std::prev(next)->second) > at) overlap(id, std::prev(next)->second);
      if (living.emplace(at, id).second) ending.emplace(last_[id.index()], id);
    }
  }
  void overlap(BufferId a, BufferId b) {
    say(plan_[a].name, " and ", plan_[b].name, " lie in the same memory while both are needed");
  }

  void one_at_a_time(Slot& slot) {
    std::sort(slot.users.begin(), slot.users.end(),
              [&](BufferId a, BufferId b) { return first_[a.index()] < first_[b.index()]; });
    for (size_t k = 1; k < slot.users.size(); ++k)
      if (last_[slot.users[k - 1].index()] >= first_[slot.users[k].index()]) overlap(slot.users[k - 1], slot.users[k]);
  }

  void one_behind_the_other(std::vector<Slot> list) {
    const auto example = [&](const Expr& e) -> int64_t {
      std::vector<uint32_t> symbols;
      e.collect_symbols(symbols);
      std::vector<int64_t> values;
      for (const uint32_t symbol : symbols)
        if (symbol >= values.size()) values.resize(symbol + 1, 1000);
      return e.evaluate(values);
    };
    std::stable_sort(list.begin(), list.end(), [&](const Slot& a, const Slot& b) {
      return std::pair(example(a.at), example(a.end)) < std::pair(example(b.at), example(b.end));
    });
    for (size_t k = 0; k < list.size(); ++k) {
      if (!prover_.never_negative(list[k].at)) say(named(list[k]), " is not known to begin in the arena");
      const bool last = k + 1 == list.size();
      if (!prover_.never_negative((last ? plan_.arena : list[k + 1].at) - list[k].end))
        say(named(list[k]), last ? " is not known to end in the arena"
                                 : base::concat(" is not known to end before ", named(list[k + 1])));
    }
  }
  std::string named(const Slot& slot) const {
    return slot.users.empty() ? std::string("a place") : plan_[slot.users.front()].name;
  }

  const Plan& plan_;
  types::Prover prover_;
  std::vector<size_t> first_, last_;  ///< by buffer: steps that touch it
  std::vector<bool> written_;
  std::vector<Use> uses_;  ///< by buffer: what the step does that is looked at
  std::vector<std::string> broken_;
};

class SignatureVerifier {
 public:
  SignatureVerifier(const Plan& plan, const Signature& signature, std::vector<types::Condition>* asked)
      : plan_(plan), signature_(signature), prover_(plan.conditions), asked_(asked) {}

  std::vector<std::string> run() {
    if (signature_.types.size() != plan_.buffers.size()) {
      say("there are ", signature_.types.size(), " types for ", plan_.buffers.size(), " buffers");
      return std::move(broken_);
    }
    for (size_t b = 0; b < plan_.buffers.size(); ++b) buffer(BufferId(b));
    for (const BufferId id : signature_.inputs) outside(id, "input");
    for (const BufferId id : signature_.constants) outside(id, "constant");
    for (const Signature::Output& out : signature_.outputs) output(out);
    for (const Signature::Store& one : signature_.stores) store(one);
    for (const Step& s : plan_.steps)
      if (s.kind == Step::Kind::kCall) call(s);
    return std::move(broken_);
  }

 private:
  template <class... Pieces>
  void say(const Pieces&... pieces) {
    broken_.push_back(base::concat(pieces...));
  }
  const types::TensorType& type(BufferId id) const { return signature_.types[id.index()]; }
  const std::string& name(BufferId id) const { return plan_[id].name; }
  bool exists(BufferId id, std::string_view who) {
    if (id.valid() && id.index() < plan_.buffers.size()) return true;
    say(who, " names a buffer that does not exist");
    return false;
  }
  bool is_outside(BufferId id) const { return plan_[id].place == Place::kIn || plan_[id].place == Place::kConstant; }
  /// Memory that is still there after the last step.
  bool stays(BufferId id) const {
    return is_outside(id) || plan_[id].place == Place::kOut || plan_[id].place == Place::kCall;
  }

  void buffer(BufferId id) {
    const types::TensorType& t = type(id);
    if (t.sizes.size() != t.strides.size()) return say(name(id), " has a type without strides");
    if (!is_outside(id) && plan_[id].place != Place::kTemp && !(t.offset == Expr(0)))
      say(name(id), " is made for this run, but begins ", to_string(t.offset),
          " elements after the begin of its memory");
    if (std::find(t.sizes.begin(), t.sizes.end(), Expr(0)) != t.sizes.end()) return;
    const auto before = prover_.mark();
    Expr last = t.offset;
    for (size_t d = 0; d < t.sizes.size(); ++d) {
      prover_.assume_not_negative(t.sizes[d] - 1);  // an empty one needs no memory
      last = last + (t.sizes[d] - 1) * t.strides[d];
    }
    const Expr bytes = (last + 1) * static_cast<int64_t>(types::item_size(t.dtype));
    const bool enough = prover_.never_negative(plan_[id].bytes - bytes);
    prover_.back_to(before);
    if (enough) return;
    if (!ask({{Expr::min(types::numel(t.sizes), 1) * bytes, types::Relation::kLe, plan_[id].bytes}}))
      say(name(id), " has ", to_string(plan_[id].bytes), " bytes, too few for ", to_string(t));
  }

  /// Whether what is not known can be asked when the plan runs.
  bool ask(const std::vector<types::Condition>& list) {
    if (!asked_) return false;
    for (const types::Condition& c : list)
      if (types::known(c, {}) == false) return false;
    for (const types::Condition& c : list)
      if (std::find(asked_->begin(), asked_->end(), c) == asked_->end()) asked_->push_back(c);
    return true;
  }
  bool lies_inside(const types::TensorType& view, const types::TensorType& of) {
    return prover_.lies_inside(view, of) || ask(prover_.to_lie_inside(view, of));
  }

  void outside(BufferId id, std::string_view who) {
    if (!id.valid()) return;  // nobody reads it
    if (exists(id, who) && !is_outside(id)) say(who, " ", name(id), " is not the caller's memory");
  }

  void output(const Signature::Output& out) {
    if (!out.buffer.valid()) return;
    if (!exists(out.buffer, "an output")) return;
    const types::TensorType& whole = type(out.buffer);
    if (!stays(out.buffer)) say("output ", name(out.buffer), " is gone when the plan has run");
    if (out.is_itself && (!is_outside(out.buffer) || out.type != whole))
      say("output ", name(out.buffer), " is no input, but is said to be one");
    if (out.type.device != whole.device) say("output ", name(out.buffer), " is on another device than its memory");
    if (!lies_inside(out.type, whole))
      say("an output of type ", to_string(out.type), " does not lie in ", name(out.buffer), ", ", to_string(whole));
  }

  void store(const Signature::Store& s) {
    if (!exists(s.value, "a store") || !exists(s.into, "a store")) return;
    if (plan_[s.into].place != Place::kIn) say("a store changes ", name(s.into), ", which is no input");
    if (!stays(s.value) || is_outside(s.value)) say("a store takes ", name(s.value), ", which no step keeps");
    if (type(s.value).sizes != s.type.sizes || type(s.value).dtype != s.type.dtype)
      say("a store puts ", to_string(type(s.value)), " into ", to_string(s.type), " of ", name(s.into));
    if (s.type.dtype != type(s.into).dtype || !lies_inside(s.type, type(s.into)))
      say("a store changes ", to_string(s.type), ", which does not lie in ", name(s.into), ", ",
          to_string(type(s.into)));
  }

  // ---- calls -------------------------------------------------------------------------------------------------------

  /// $1:f32[4, 3]{1, 4}+2 is a part of the second buffer; after -> stands a $ for each result.
  void call(const Step& s) {
    if (s.name == "magneto::sort") return sort(s);
    std::string_view text = s.arguments;
    bool quoted = false;
    while (!text.empty()) {
      if (!quoted && text.starts_with(" ->")) {
        if (static_cast<size_t>(std::count(text.begin(), text.end(), '$')) != s.writes.size())
          say("call ", s.name, " has ", s.writes.size(), " results, but says", text);
        return;
      }
      const char c = text.front();
      text.remove_prefix(1);
      if (quoted && c == '\\' && !text.empty()) text.remove_prefix(1);
      if (c == '"') quoted = !quoted;
      if (c != '$' || quoted) continue;
      size_t number = 0;
      for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1))
        number = 10 * number + static_cast<size_t>(text.front() - '0');
      if (number >= s.reads.size()) {
        say("call ", s.name, " takes $", number, ", but reads ", s.reads.size(), " buffers");
        return;
      }
      if (text.empty() || text.front() != ':') continue;
      text.remove_prefix(1);
      const auto part = types::take_tensor_type(text);
      if (!part)
        say("call ", s.name, " has a part of ", name(s.reads[number]), " that is no type");
      else if (!lies_inside(*part, type(s.reads[number])))
        say("call ", s.name, " looks at ", to_string(*part), ", which does not lie in ", name(s.reads[number]), ", ",
            to_string(type(s.reads[number])));
    }
  }

  /// "from; sorted; positions; along 1 descending"
  void sort(const Step& s) {
    std::string_view text = s.arguments;
    std::vector<BufferId> buffers = s.reads;
    buffers.insert(buffers.end(), s.writes.begin(), s.writes.end());
    for (const BufferId id : buffers) {
      const auto found = types::take_tensor_type(text);
      if (!found || *found != type(id)) return say("a sort of ", name(id), " does not know its type");
      if (found->sizes != type(buffers[0]).sizes) say("a sort gives ", name(id), " other sizes than it takes");
      if (!text.starts_with("; ")) return say("a sort has no dimension");
      text.remove_prefix(2);
    }
  }

  const Plan& plan_;
  const Signature& signature_;
  types::Prover prover_;
  std::vector<types::Condition>* const asked_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> verify(const Plan& plan) { return Verifier(plan).run(); }

std::vector<std::string> verify(const Plan& plan, const Signature& signature, std::vector<types::Condition>* asked) {
  return SignatureVerifier(plan, signature, asked).run();
}

}  // namespace magneto::plan
