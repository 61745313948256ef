// schedule/fuse.h: joins equations that can run as one kernel.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

struct Shape;

/// Marks equations that one kernel computes as joined and puts them one after the other. Producers join their readers,
/// and readers of the same data one another, where their spaces agree and every value is read at the point at which it
/// was made; the pair that saves most bytes first. Joins make no cycles. Runs after simplify and inline_cheap, before
/// tile. Without it every equation is a kernel.
void fuse(loop::Program& program, const Shape& shape);

}  // namespace magneto::schedule
