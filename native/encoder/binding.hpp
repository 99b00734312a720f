// What api.cpp calls to make the fused blocks known to Python.
#pragma once
#include <nanobind/nanobind.h>

namespace geoattn::encoder {
void bind(nanobind::module_& m);
}
