// base/violation.h: a verifier found a fault of ours.
#pragma once
#include "base/check.h"

namespace magneto::base {

/// A stage broke its promise: what it made is not trusted, and the user is told that this is a bug of ours.
class Violation : public Fault {
 public:
  using Fault::Fault;
};

}  // namespace magneto::base
