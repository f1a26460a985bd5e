#include "verify/source_rows.h"

#include <fmt/format.h>

#include "canonical/stacked_rows.h"

namespace prepack {
namespace {

Status MembersDiffer(const PackedModule& packed, std::string_view what) {
  return Malformed(fmt::format("module {}", packed.name()),
                   fmt::format("the modules of the source that it is made of differ in {}", what));
}

// Appends rows of another member.
Status Append(const PackedModule& packed, const DecodedRows& more, DecodedRows& out) {
  if (more.group_of != out.group_of) return MembersDiffer(packed, "the groups of their inputs");
  out.steps.insert(out.steps.end(), more.steps.begin(), more.steps.end());
  out.scales.insert(out.scales.end(), more.scales.begin(), more.scales.end());
  return {};
}

}  // namespace

Status DecodeSourceRows(const SecondDecoder& source, const PackedModule& packed, uint64_t n0,
                        uint64_t rows, DecodedRows& out, const std::optional<InputSlab>& slab) {
  const uint64_t k = packed.request().k;
  const InputSlab inputs = slab.value_or(InputSlab{.k0 = 0, .inputs = k});
  const std::vector<FusedMember>& members = packed.members();
  // The common case needs no copy.
  if (members.size() == 1) {
    return source.DecodeSlab(members.front().module, k, inputs, n0, rows, out);
  }
  std::vector<uint64_t> sizes;
  sizes.reserve(members.size());
  for (const FusedMember& member : members) sizes.push_back(member.n);
  DecodedRows more;
  return ForStackedRows(sizes, n0, rows, [&](const StackedRows& piece) {
    const std::string& module = members[piece.member].module;
    if (piece.before == 0) {
      return source.DecodeSlab(module, k, inputs, piece.n0, piece.rows, out);
    }
    Status status = source.DecodeSlab(module, k, inputs, piece.n0, piece.rows, more);
    return status.ok() ? Append(packed, more, out) : status;
  });
}

Status ReadSourceBias(const SecondDecoder& source, const PackedModule& packed,
                      std::vector<double>& bias) {
  bias.clear();
  const bool wanted = source.HasBias(packed.members().front().module);
  std::vector<double> own;
  for (const FusedMember& member : packed.members()) {
    if (source.HasBias(member.module) != wanted) return MembersDiffer(packed, "having a bias");
    if (!wanted) continue;
    Status status = source.ReadBias(member.module, own);
    if (!status.ok()) return status;
    bias.insert(bias.end(), own.begin(), own.end());
  }
  return {};
}

Result<DecodedInput> ReadSourceInput(const SecondDecoder& source, const PackedModule& packed) {
  Result<DecodedInput> first = source.ReadInput(packed.members().front().module);
  for (const FusedMember& member : packed.members()) {
    Result<DecodedInput> own = source.ReadInput(member.module);
    if (!own.ok()) return own;
    if (*own != *first) return MembersDiffer(packed, "the scale of their inputs");
  }
  return first;
}

}  // namespace prepack
