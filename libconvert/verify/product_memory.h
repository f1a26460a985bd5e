#ifndef PREPACK_VERIFY_PRODUCT_MEMORY_H_
#define PREPACK_VERIFY_PRODUCT_MEMORY_H_

// What the multiplication of a packed module takes, for --memory-limit.

#include "io/memory_limit.h"
#include "verify/module_products.h"
#include "verify/packed_folder.h"

namespace prepack {

// At most; nothing for a module that cannot be multiplied.
MemoryNeed MemoryOfProducts(const PackedModule& packed, const ProductOptions& options);

}  // namespace prepack

#endif  // PREPACK_VERIFY_PRODUCT_MEMORY_H_
