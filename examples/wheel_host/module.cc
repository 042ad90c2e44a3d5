// wheel_host._core: what the runtime in this wheel finds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <aotbuild/aotbuild.hpp>
#include <string>

NB_MODULE(_core, module) {
  module.def("version", [] { return std::string(aotbuild_version()); });
  module.def(
      "describe",
      [](const std::string& arch) { return aotbuild::Library().describe(arch.c_str()); },
      nanobind::arg("arch"), "The search path, and the packs found for an arch.");
}
