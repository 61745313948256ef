#include "toolchain/llvm.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"
#include "toolchain/library.h"

namespace magneto::toolchain {

namespace {

// llvmlite's objects; only pointers to them are ever seen.
struct Context;
struct Module;
struct TargetRef;
struct TargetMachine;
struct MemoryBuffer;
struct Jit;
struct Tracker;

// As llvmlite's linker takes its arguments.
struct LinkElement {
  uint8_t kind;
  const char* value;
  size_t length;
};
constexpr uint8_t kObject = 2, kLibrary = 3;
struct SymbolAddress {
  const char* name;
  uint64_t address;
};

constexpr int kDefaultLevel = 2;

}  // namespace

struct Llvm::Functions {
  Library library;
  void (*initialize_target)();
  void (*initialize_printer)();
  void (*set_option)(const char* program, const char* option);
  void (*default_triple)(const char** triple);
  void (*dispose_string)(const char* text);
  Context* (*create_context)();
  void (*dispose_context)(Context*);
  Module* (*parse)(Context*, const char* text, const char** error);
  void (*dispose_module)(Module*);
  TargetRef* (*find_target)(const char* triple, const char** error);
  TargetMachine* (*create_machine)(TargetRef*, const char* triple, const char* cpu, const char* features, int level,
                                   const char* relocation, const char* code_model, int print, int jit, const char* abi);
  void (*dispose_machine)(TargetMachine*);
  MemoryBuffer* (*emit)(TargetMachine*, Module*, int object, const char** error);
  const char* (*buffer_start)(MemoryBuffer*);
  size_t (*buffer_size)(MemoryBuffer*);
  void (*dispose_buffer)(MemoryBuffer*);
  Jit* (*create_jit)(TargetMachine*, bool suppress_errors, bool jit_link, const char** error);
  void (*dispose_jit)(Jit*);
  Tracker* (*link)(Jit*, const char* name, LinkElement*, size_t, SymbolAddress* imports, size_t, SymbolAddress* exports,
                   size_t, const char** error);
  bool (*dispose_tracker)(Tracker*, const char** error);
  std::string triple;

  /// What LLVM said, which is ours to dispose of.
  std::string take(const char* text) const {
    if (!text) return "no reason given";
    std::string copy(text);
    dispose_string(text);
    return copy;
  }

  TargetMachine* machine(const std::string& features, bool jit) const {
    const char* error = nullptr;
    TargetRef* target = find_target(triple.c_str(), &error);
    if (!target) throw base::Fault("toolchain: LLVM: " + take(error));
    TargetMachine* made =
        create_machine(target, triple.c_str(), "", features.c_str(), kDefaultLevel, "pic", "default", 0, jit, "");
    base::check(made != nullptr, "toolchain: LLVM makes no code for ", triple, " with ", features);
    return made;
  }
};

Llvm::Llvm(const std::string& path) : llvm_(std::make_unique<Functions>()) {
  Functions& f = *llvm_;
  f.library = Library(path, true);
  const auto get = [&](auto& function, const char* name) { f.library.get(function, name); };
  get(f.initialize_target, "LLVMPY_InitializeNativeTarget");
  get(f.initialize_printer, "LLVMPY_InitializeNativeAsmPrinter");
  get(f.set_option, "LLVMPY_SetCommandLine");
  get(f.default_triple, "LLVMPY_GetProcessTriple");
  get(f.dispose_string, "LLVMPY_DisposeString");
  get(f.create_context, "LLVMPY_ContextCreate");
  get(f.dispose_context, "LLVMPY_ContextDispose");
  get(f.parse, "LLVMPY_ParseAssembly");
  get(f.dispose_module, "LLVMPY_DisposeModule");
  get(f.find_target, "LLVMPY_GetTargetFromTriple");
  get(f.create_machine, "LLVMPY_CreateTargetMachine");
  get(f.dispose_machine, "LLVMPY_DisposeTargetMachine");
  get(f.emit, "LLVMPY_TargetMachineEmitToMemory");
  get(f.buffer_start, "LLVMPY_GetBufferStart");
  get(f.buffer_size, "LLVMPY_GetBufferSize");
  get(f.dispose_buffer, "LLVMPY_DisposeMemoryBuffer");
  get(f.create_jit, "LLVMPY_CreateLLJITCompiler");
  get(f.dispose_jit, "LLVMPY_LLJITDispose");
  get(f.link, "LLVMPY_LLJIT_Link");
  get(f.dispose_tracker, "LLVMPY_LLJIT_Dylib_Tracker_Dispose");
  f.initialize_target();
  f.initialize_printer();
  static std::atomic<bool> options_set{false};  // an option may be given once in a process
  if (!options_set.exchange(true)) f.set_option("magneto", "-disable-lsr");
  const char* triple = nullptr;
  f.default_triple(&triple);
  f.triple = f.take(triple);
}

Llvm::~Llvm() = default;

std::string Llvm::compile(const std::string& text, const std::string& features) const {
  const Functions& f = *llvm_;
  Context* context = f.create_context();
  TargetMachine* machine = f.machine(features, false);
  const char* error = nullptr;
  Module* module = f.parse(context, text.c_str(), &error);
  std::string object, complaint;
  if (!module) {
    complaint = f.take(error);
  } else {
    MemoryBuffer* buffer = f.emit(machine, module, 1, &error);
    if (buffer) {
      object.assign(f.buffer_start(buffer), f.buffer_size(buffer));
      f.dispose_buffer(buffer);
    } else {
      complaint = f.take(error);
    }
    f.dispose_module(module);
  }
  f.dispose_machine(machine);
  f.dispose_context(context);
  if (!complaint.empty()) throw base::Fault("toolchain: LLVM: " + complaint);
  return object;
}

std::unique_ptr<LoadedCode> Llvm::link(std::string_view object, const std::vector<std::string>& functions) const {
  class Code : public LoadedCode {
   public:
    Code(const Functions& f, Jit* jit, Tracker* tracker) : f_(f), jit_(jit), tracker_(tracker) {}
    ~Code() override {
      const char* error = nullptr;
      f_.dispose_tracker(tracker_, &error);
      if (error) f_.dispose_string(error);
      f_.dispose_jit(jit_);
    }
    void* get(const std::string& name) const override {
      const auto found = addresses.find(name);
      base::check(found != addresses.end(), "toolchain: no function ", name);
      return found->second;
    }
    std::map<std::string, void*> addresses;

   private:
    const Functions& f_;
    Jit* jit_;
    Tracker* tracker_;
  };
  const Functions& f = *llvm_;
  const char* error = nullptr;
  TargetMachine* machine = f.machine("", true);
  // JITLink gives all sections of an object one piece of memory. The older linker asks for each of them, and where the
  // address space has only holes left, constants lie more than 2 GB from the code: LLVM ends the process.
  constexpr bool kJitLink = true;
  Jit* jit = f.create_jit(machine, false, kJitLink, &error);
  f.dispose_machine(machine);
  if (!jit) throw base::Fault("toolchain: LLVM: " + f.take(error));
  LinkElement elements[] = {{kObject, object.data(), object.size()}, {kLibrary, "", 0}};  // "": this process
  std::vector<SymbolAddress> exports;
  for (const std::string& name : functions) exports.push_back({name.c_str(), 0});
  Tracker* tracker = f.link(jit, "kernels", elements, 2, nullptr, 0, exports.data(), exports.size(), &error);
  if (!tracker) {
    const std::string complaint = f.take(error);
    f.dispose_jit(jit);
    throw base::Fault("toolchain: LLVM: " + complaint);
  }
  auto code = std::make_unique<Code>(f, jit, tracker);
  for (size_t k = 0; k < functions.size(); ++k)
    code->addresses[functions[k]] = reinterpret_cast<void*>(static_cast<uintptr_t>(exports[k].address));
  return code;
}

std::string find_llvmlite(const std::vector<std::string>& site_packages) {
  if (const char* given = std::getenv("MAGNETO_LLVMLITE")) return given;
  for (const std::string& folder : site_packages) {
    const std::string path = folder + "/llvmlite/binding/libllvmlite.so";
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

}  // namespace magneto::toolchain
