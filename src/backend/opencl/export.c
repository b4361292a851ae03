/* The shared object's only symbol; where the backend is linked in, this file is left out. */
#include "backend/opencl/opencl.h"

__attribute__((visibility("default"))) const wb__backend *wb_backend_5(const wb__host *table);

const wb__backend *wb_backend_5(const wb__host *table) { return wb__opencl_entry(table); }
