// evaluator/hook.h: the one door through which frames reach us (PEP 523). The interpreter's eval function is ours only
// while a Hooked lives somewhere; at all other times unrelated Python code runs at full speed.
#pragma once
#include "evaluator/activation.h"

namespace magneto::evaluator {

/// While it lives, frames that start on this thread are offered to `director` (nullptr: to nobody, for opaque calls and
/// finalizers inside a recording). They nest; frames of other threads pass through to the previous eval function.
class Hooked {
 public:
  explicit Hooked(Director* director);
  ~Hooked();
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;

 private:
  friend Director* current_director();
  static int listens(const Hooked* hooked);
  Director* director_;
  const Hooked* before_;
};

/// Whether frames reach us before any other evaluator (TorchDynamo's, a debugger's): one that comes before us may run
/// frames that we never see.
bool is_first_evaluator();
bool has_other_evaluator();  ///< somewhere; perhaps it does nothing on this thread

/// The director of this thread; nullptr: frames run in CPython.
Director* current_director();

/// Offers the frames of all threads that have no Hooked to `director`; nullptr: to nobody. For tests of the evaluator.
void set_director_everywhere(Director* director);

/// Why this interpreter cannot be captured ("CPython 3.15 is not known ..."); nullptr: it can. Runs the self test once.
const char* unsupported_interpreter();

}  // namespace magneto::evaluator
