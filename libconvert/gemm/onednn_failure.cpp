#include "gemm/onednn_failure.h"

#include <dnnl.hpp>
#include <exception>
#include <new>

namespace prepack {

Status CurrentOneDnnFailure(std::string_view hint) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kSystem, "oneDNN", "out of memory"};
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return {ErrorKind::kSystem, "oneDNN", "out of memory"};
    }
    return Unavailable("oneDNN", error.what()).Hint(hint);
  } catch (const std::exception& error) {
    return Unavailable("oneDNN", error.what()).Hint(hint);
  }
}

}  // namespace prepack
