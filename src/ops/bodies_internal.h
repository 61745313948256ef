// ops/bodies_internal.h: common forms of bodies: which arguments are operands and which type is computed in.
#pragma once
#include "ops/body.h"
#include "ops/rules_internal.h"

namespace magneto::ops {

/// A function of the first argument, in the type it has.
template <Element (*function)(Element)>
Element of_one(Body& b) {
  b.promote({0});
  return function(b.x(0));
}
/// The same in a float.
template <Element (*function)(Element)>
Element float_of_one(Body& b) {
  b.promote_to_float({0});
  return function(b.x(0));
}
/// An operation of the first two arguments, in the type both are promoted to.
template <loop::Op op>
Element of_two(Body& b) {
  b.promote({0, 1});
  return binary(op, b.x(0), b.x(1));
}
template <loop::Op op>
Element float_of_two(Body& b) {
  b.promote_to_float({0, 1});
  return binary(op, b.x(0), b.x(1));
}
template <Element (*function)(Element, Element)>
Element by_two(Body& b) {
  b.promote({0, 1});
  return function(b.x(0), b.x(1));
}
template <Element (*function)(Element, Element)>
Element float_by_two(Body& b) {
  b.promote_to_float({0, 1});
  return function(b.x(0), b.x(1));
}

}  // namespace magneto::ops
