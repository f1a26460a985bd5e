#include "prepack/layouts/fingerprint.h"

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/layouts/table.h"

namespace prepack::testing {
namespace {

TEST_CASE("the fingerprints in the table are those of today's bytes, on every instruction set") {
  for (const LayoutTable& table : {AllLayouts(), CheckpointLayouts()}) {
    for (const Layout& layout : table) {
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        INFO(layout.id << " " << IsaName(isa));
        CHECK(PackingFingerprint(layout) == layout.fingerprint);
      }
    }
  }
}

TEST_CASE("a moved nibble, another scale dtype or another part changes the fingerprint") {
  Layout changed = *FindLayout("zentorch/woq");
  changed.pack_codes = [](const PackJob& job, std::span<const std::byte> codes,
                          std::span<std::byte> packed) {
    FindLayout("zentorch/woq")->pack_codes(job, codes, packed);
    packed[1000] ^= std::byte{1};
  };
  CHECK(PackingFingerprint(changed) != changed.fingerprint);

  changed = *FindLayout("zentorch/woq");
  changed.weight.dtype = DType::kU32;
  CHECK(PackingFingerprint(changed) != changed.fingerprint);
}

}  // namespace
}  // namespace prepack::testing
