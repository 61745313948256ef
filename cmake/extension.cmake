# The Python extension. torch is found by its paths, as torch.utils.cpp_extension does: find_package(Torch) would demand a
# CUDA toolkit, because the torch on PyPI is the CUDA build. Nothing of CUDA is needed here.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
  OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
message(STATUS "torch: ${torch_root}")

file(GLOB extension_sources CONFIGURE_DEPENDS
  src/aten/*.cpp src/evaluator/*.cpp src/capture/*.cpp src/driver/pipeline.cpp src/explain/*.cpp src/bindings/*.cpp)
Python_add_library(_C MODULE WITH_SOABI ${extension_sources})
target_include_directories(_C PRIVATE src)
# pybind11 is the copy among torch's headers: both sides then share one registry of types.
target_include_directories(_C SYSTEM PRIVATE
  ${torch_root}/include ${torch_root}/include/torch/csrc/api/include ${Python_INCLUDE_DIRS})
# torch's own flags for its headers; strict aliasing is off because CPython's object structs are cast into each other.
# g++ 12 warns of impossible copies in std::string's operator+ when it inlines all of it.
target_compile_options(_C PRIVATE -fno-strict-aliasing -Wno-stringop-overflow -Wno-restrict)
target_link_directories(_C PRIVATE ${torch_root}/lib)
target_link_libraries(_C PRIVATE magneto_middle torch_python torch_cpu c10 ${CMAKE_DL_LIBS})
# torch's headers are most of the compile time: they are parsed once. The evaluator knows CPython only.
target_precompile_headers(_C PRIVATE <ATen/core/Tensor.h> <torch/csrc/autograd/python_variable.h> <torch/library.h>)
file(GLOB evaluator_sources CONFIGURE_DEPENDS src/evaluator/*.cpp src/bindings/testing_evaluator.cpp src/explain/*.cpp)
set_source_files_properties(${evaluator_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# torch is imported before us, so its libraries are loaded already; the rpath serves tools like ldd.
set_target_properties(_C PROPERTIES BUILD_RPATH ${torch_root}/lib INSTALL_RPATH ${torch_root}/lib)
install(TARGETS _C LIBRARY DESTINATION magneto)
