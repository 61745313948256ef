// schedule/dead.h: drops what no output needs.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

/// Drops every equation without side effects of which no target is an output or is read later. Extern calls that write
/// nothing stay: they are called for their effect. So does what may refuse its data: its result becomes an output.
void drop_dead(loop::Program& program);

}  // namespace magneto::schedule
