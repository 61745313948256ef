// capture/stop_reasons.h: every reason for which capture stops, one row each: what, and the cure. explain() and
// report() print these words unchanged. `%s` stands for the name of the thing that was met.
#pragma once
#include <string>
#include <string_view>

namespace magneto::capture {

enum class Stop : unsigned char {
  kNone,
  kOpaqueCall,
  kOpaqueType,
  kOpaqueSlot,
  kProgramKey,
  kOpaqueAttribute,
  kTensorData,
  kRefused,
  kTensorBranch,
  kOutsideIterator,
  kUnknownTensor,
  kTensorSubclass,
  kTensorAttribute,
  kFinalizer,
  kAsync,
  kClassBody,
  kRaised,
  kHandlerExit,
  kFrameHeld,
  kInner,
  kNoRecipe,
  kUnknownObject,
  kEffect,
  kAutogradFunction,
  kGlobalState,
  kHandOver,
  kImport,
  kInstruction,
  kRecurrent,
  kDisabled,
  kAsked,
  kRegistersHook,
  kRunsBackward,
  kHigherOrder,
  kFault,
  kCount,
};

struct StopText {
  Stop stop;
  std::string_view what;
  std::string_view cure;
};

inline constexpr StopText kStopTexts[] = {
    {Stop::kNone, "nothing", ""},
    {Stop::kOpaqueCall, "%s is a C function whose effects are not known",
     "move the call out of the compiled function, or accept the break: it runs as in eager"},
    {Stop::kOpaqueType, "an object of the C type %s is made here, and its constructor is not known",
     "make the object outside of the compiled function and pass it in"},
    {Stop::kOpaqueSlot, "an operator of the C type %s is used, and what it reads is not known",
     "convert the object to a tensor or a Python number before the compiled function"},
    {Stop::kProgramKey, "a key of type %s has a __hash__ or an __eq__ of the program, which no guard may run once more",
     "use a str, an int or a tuple of them as the key, or a class without __eq__: its objects are keys by identity"},
    {Stop::kOpaqueAttribute, "the attribute %s is computed by C code that is not known",
     "read it before the compiled function and pass the value in"},
    {Stop::kTensorData, "%s needs the values of a tensor",
     "keep the value on the device (a 0-dim tensor), or read it outside of the compiled function"},
    {Stop::kRefused, "%s cannot be part of a graph",
     "call it outside of the compiled function, or accept the break: it runs as in eager"},
    {Stop::kTensorBranch, "the branch depends on a tensor's value",
     "use torch.where, or compute the condition before the compiled function"},
    {Stop::kOutsideIterator, "an iterator from outside (%s) is advanced",
     "pass a list or tuple instead of an iterator"},
    {Stop::kUnknownTensor, "a tensor comes out of %s, which is no torch operator",
     "make the tensor with a torch operator, or pass it in as an argument"},
    {Stop::kTensorSubclass, "a tensor takes part that is not a plain dense one (%s)",
     "pass a plain, strided torch.Tensor"},
    {Stop::kTensorAttribute, "the attribute %s of a tensor is state outside of the graph",
     "read or set it outside of the compiled function"},
    {Stop::kFinalizer, "an object runs code at its end (%s)",
     "make, keep and let go of such objects outside of the compiled function"},
    {Stop::kAsync, "%s suspends the function", "compile the part between two awaits or yields instead"},
    {Stop::kClassBody, "a class is defined here", "define the class at module level"},
    {Stop::kRaised, "an exception leaves the function: %s",
     "handle the exception inside, or accept that this path runs as in eager"},
    {Stop::kHandlerExit, "the function stops inside an except block", "move the work after the except block"},
    {Stop::kFrameHeld, "an exception that was caught, or something else that holds this frame, is alive here",
     "let it go: what follows runs as in eager"},
    {Stop::kInner, "a function called here contains a break: %s", "see the break inside"},
    {Stop::kNoRecipe, "an object of type %s is alive here and cannot be rebuilt from its parts",
     "let it end before this line, or make it outside of the compiled function"},
    {Stop::kUnknownObject, "%s gave an object that was reached by no recorded read",
     "pass the object in as an argument"},
    {Stop::kEffect, "%s changes an object from outside in a way that cannot be repeated",
     "make the change outside of the compiled function"},
    {Stop::kAutogradFunction,
     "what the backward of a custom autograd.Function does is known when it runs, and not before: %s",
     "let its backward change no objects, print nothing, read no data; or accept the break: it runs as in eager"},
    {Stop::kGlobalState, "%s is active, which only eager knows", "leave the mode before calling the compiled function"},
    {Stop::kHandOver, "CPython has to finish this frame: %s", "none needed: it runs as in eager"},
    {Stop::kImport, "a module that is not there is imported: %s",
     "install it, or ask for it outside of the compiled function"},
    {Stop::kInstruction, "the instruction %s is not recorded", "none needed: it runs as in eager"},
    {Stop::kRecurrent, "%s runs over a length that changes, and would need a program for each",
     "none needed: it runs as in eager; pad to one length to have it in the graph"},
    {Stop::kDisabled, "%s is marked with torch.compiler.disable", "none needed: it runs as in eager, as it asks"},
    {Stop::kAsked, "%s asks for a break", "take the call away"},
    {Stop::kRegistersHook, "%s gives a tensor Python code that its backward runs",
     "register the hook outside of the compiled function, or accept the break: it runs as in eager"},
    {Stop::kRunsBackward, "%s runs a backward of tensors that the graph has only begun to make",
     "none needed: it runs as in eager; torch.func.grad of a function stays in the graph"},
    {Stop::kHigherOrder, "%s compiles the functions that it is given with torch.compile, in eager too",
     "none needed: it runs as in eager; torch.where, or an if or a loop over Python values, stays in the graph"},
    {Stop::kFault, "a fault of Magneto's own: %s", "please report it; meanwhile this line runs as in eager"},
};

constexpr const StopText& text_of(Stop stop) { return kStopTexts[static_cast<unsigned char>(stop)]; }
/// What it says to the user.
inline std::string describe(Stop stop, const std::string& detail) {
  std::string what(text_of(stop).what);
  if (const size_t at = what.find("%s"); at != std::string::npos) what.replace(at, 2, detail);
  return what;
}
static_assert(sizeof(kStopTexts) / sizeof(kStopTexts[0]) == static_cast<size_t>(Stop::kCount));

}  // namespace magneto::capture
