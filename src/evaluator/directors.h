// evaluator/directors.h: a director that records nothing. The self test and the tests run frames with it.
#pragma once
#include <cstdint>

#include "evaluator/activation.h"

namespace magneto::evaluator {

/// Runs frames with plain semantics and hands them over to CPython where `should_leave` says so.
class PlainDirector : public Director {
 public:
  bool wants(PyThreadState*, Frame*) override { return true; }
  bool entered(Activation&) override { return asks_; }
  Go at_boundary(Activation& activation) override {
    activation.request_boundary();
    return should_leave(activation) ? Go::kHandOver : Go::kRun;
  }
  Go stopped(Activation&) override { return Go::kStepOver; }
  void left(Activation&, Exit, PyObject*) override {}

 protected:
  /// Asked before each instruction, if asks_.
  virtual bool should_leave(Activation&) { return false; }
  bool asks_ = false;
};

}  // namespace magneto::evaluator
