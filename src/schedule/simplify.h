// schedule/simplify.h: brings equations into the one form that the other passes compare.
#pragma once
namespace magneto::loop {
class Program;
}
namespace magneto::schedule {

/// Axes get their names by place: i0, i1, ... over the sizes of the target that are not one, then on over what is
/// reduced; an axis of one element becomes 0. So two equations over the same space are made of the same terms. Index
/// arithmetic is folded by what is known of the axes ((8 * i + j) // 8 is i where j < 8), a reduction inside an element
/// (y[i, j] = x[i, j] - max(k < 8, x[i, k])) becomes an equation of its own, equations that no output needs are
/// dropped.
void simplify(loop::Program& program);

}  // namespace magneto::schedule
