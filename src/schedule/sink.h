// schedule/sink.h: calls as late as memory wants them.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

/// Moves a call down to the first equation that reads what it makes, past those that leave less memory taken than
/// before (the sum of two values that nobody reads later). Calls with an effect stay where they are.
void sink_calls(loop::Program& program);

}  // namespace magneto::schedule
