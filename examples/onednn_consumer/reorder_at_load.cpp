#include "reorder_at_load.h"

#include "reference.h"

using dnnl::memory;

ReorderAtLoad::ReorderAtLoad(const Module& module, const Operands& operands)
    : dims_{static_cast<memory::dim>(module.k), static_cast<memory::dim>(module.n)} {
  for (uint64_t n = 0; n < module.n; ++n) {
    for (uint64_t k = 0; k < module.k; ++k) {
      const int code = Code(module, operands, n, k);
      if (module.Is4Bit()) {
        f32_.push_back(static_cast<float>(code));
      } else {
        s8_.push_back(static_cast<int8_t>(code));
      }
    }
  }
}

memory ReorderAtLoad::Run(const dnnl::engine& engine, const memory::desc& wanted) {
  const bool bytes = f32_.empty();
  const memory::desc rows(dims_, bytes ? memory::data_type::s8 : memory::data_type::f32,
                          memory::format_tag::ba);
  memory from(rows, engine, bytes ? static_cast<void*>(s8_.data()) : f32_.data());
  memory to(wanted, engine);
  dnnl::stream stream(engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return to;
}
