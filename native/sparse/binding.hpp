// What module.cpp calls to make the sparse solver known to Python.
#pragma once
#include <nanobind/nanobind.h>

namespace geoattn::sparse {
void bind(nanobind::module_& m);
}
