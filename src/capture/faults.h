// capture/faults.h: faults of our own (base::Fault, c10::Error, no memory) while a frame runs. CPython's C code lies
// between our frames and between us and the caller, and no C++ exception may cross it. A fault costs the recording, a
// warning and nothing else: the program goes on as in eager. There are three nets.
//
//   what the recorder notes   adopt, guard_..., record_...: the recording is thrown away, the primitive goes on, with
//                             the result that it may already have
//   a primitive               has done nothing yet when anything else in it throws: the instruction is executed plainly
//   the director              before an instruction: CPython takes the frame; at its end: only the recording is lost
#pragma once

namespace magneto::capture {

namespace internal {
extern bool g_tests_ask;  ///< under the GIL; a plain word, because fault points stand on the path of every call
void asked_fault_point(const char* where);
}  // namespace internal

/// Throws a base::Fault if a test asked for one here.
inline void fault_point(const char* where) {
  if (internal::g_tests_ask) [[unlikely]]
    internal::asked_fault_point(where);
}

/// For tests: the fault point `where` throws when it is met for the `countdown`-th time from now, counted from 0, in
/// this thread. nullptr: none does.
void throw_at(const char* where, long countdown);
/// For tests: whether it has thrown.
bool has_thrown();

}  // namespace magneto::capture
