#include "verify/mutations.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include "formats/checkpoint_builder.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/convert/output_shards.h"
#include "prepack/formats/format.h"
#include "prepack/layouts/parameters.h"
#include "prepack/packed/output_hash.h"
#include "status_matchers.h"
#include "verify/folder_damage.h"

namespace prepack::testing {
namespace {

using Bytes = std::vector<std::byte>;

std::string PartName(const PackedModule& packed, PartRole role) {
  return std::string(FindPart(packed.parts(), role)->name);
}

Bytes ReadPart(const PackedModule& packed, PartRole role) {
  PageBuffer bytes;
  RequireOk(packed.ReadWholePart(role, bytes));
  return {bytes.begin(), bytes.end()};
}

Bytes AsBytes(const std::vector<int32_t>& values) {
  Bytes bytes(values.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Puts packed rows 0 to N where they belong.
Bytes Scattered(const Placement& placement, const Bytes& packed, Bytes part) {
  auto from = packed.begin();
  RequireOk(ForPieces(placement, [&](uint64_t offset, uint64_t bytes) {
    std::copy_n(from, bytes, part.begin() + static_cast<std::ptrdiff_t>(offset));
    from += static_cast<std::ptrdiff_t>(bytes);
    return Status();
  }));
  return part;
}

// Makes a record say where the tensor lies, and what it holds.
void Locate(const SafetensorsHeader& header, const ShardHashes& hashes, TensorRecord& record) {
  const auto tensor = std::ranges::find(header.tensors, record.tensor, &TensorInfo::name);
  REQUIRE(tensor != header.tensors.end());
  record.offset = header.data_start + tensor->begin;
  record.xxh3_128 = hashes.tensors[static_cast<size_t>(tensor - header.tensors.begin())].Hex();
}

}  // namespace

Mutant::Mutant(std::filesystem::path folder, std::filesystem::path source, std::string module,
               std::string other)
    : folder_path_(std::move(folder)),
      source_(std::move(source)),
      module_(std::move(module)),
      other_(std::move(other)),
      folder_(Value(PackedFolder::Open(folder_path_))),
      manifest_(folder_.manifest()),
      packed_(Value(PackedModule::Open(folder_, module_, folder_.manifest().modules.at(module_)))) {
}

std::filesystem::path Mutant::Shard() const {
  return folder_path_ / "model.safetensors";
}

Bytes Mutant::Part(PartRole role) const {
  return ReadPart(packed_, role);
}

Bytes Mutant::PartOfOther(PartRole role) const {
  const ModuleRecord& record = folder_.manifest().modules.at(other_);
  return ReadPart(Value(PackedModule::Open(folder_, other_, record)), role);
}

bool Mutant::SetPart(PartRole role, const Bytes& bytes) {
  const Bytes before = Part(role);
  REQUIRE(bytes.size() == before.size());
  std::vector<char> chars(bytes.size());
  std::memcpy(chars.data(), bytes.data(), bytes.size());
  WriteBytes(folder_path_, manifest_.modules.at(module_).parts.at(PartName(packed_, role)), 0,
             chars);
  return bytes != before;
}

std::vector<float> Mutant::Scales() const {
  std::vector<float> scales(request().n * request().groups());
  PageBuffer packed;
  RequireOk(packed_.ReadScales(0, request().n, packed, scales));
  return scales;
}

std::vector<uint8_t> Mutant::ZeroPoints() const {
  std::vector<uint8_t> zero_points(request().n * request().groups());
  PageBuffer packed;
  RequireOk(packed_.ReadZeroPoints(0, request().n, packed, zero_points));
  return zero_points;
}

bool Mutant::SetScales(const std::vector<float>& scales) {
  const Placement placement =
      PlaceParameters(layout(), request(), PartRole::kScale, 0, request().n);
  Bytes packed(PlacedBytes(placement));
  RequireOk(PackScales(layout(), request(), request().n, scales, packed));
  return SetPart(PartRole::kScale, Scattered(placement, packed, Part(PartRole::kScale)));
}

bool Mutant::SetZeroPoints(const std::vector<uint8_t>& zero_points) {
  const Placement placement =
      PlaceParameters(layout(), request(), PartRole::kZeroPoint, 0, request().n);
  Bytes packed(PlacedBytes(placement));
  PackZeroPoints(layout(), request(), request().n, zero_points, packed);
  return SetPart(PartRole::kZeroPoint, Scattered(placement, packed, Part(PartRole::kZeroPoint)));
}

void Mutant::RewriteShard(const std::function<void(TestCheckpoint& shard)>& edit) {
  TestCheckpoint shard;
  {
    const File file = Value(File::OpenForRead(Shard()));
    const SafetensorsHeader header = Value(ReadSafetensorsHeader(file));
    for (const TensorInfo& tensor : header.tensors) {
      Bytes bytes(tensor.bytes());
      RequireOk(file.ReadAt(header.data_start + tensor.begin, bytes));
      shard.tensors.push_back({tensor.name,
                               std::string(DTypeName(tensor.dtype)),
                               {tensor.shape.begin(), tensor.shape.end()},
                               std::move(bytes)});
    }
  }
  edit(shard);
  std::vector<TensorInfo> tensors;
  for (const TestTensor& tensor : shard.tensors) {
    tensors.push_back(
        {.name = tensor.name,
         .dtype = *DTypeFromName(tensor.dtype),
         .shape = TensorShape(std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()))});
  }
  std::filesystem::remove(Shard());
  SafetensorsWriter writer = Value(SafetensorsWriter::Create(
      Shard(), Value(PlanSafetensors(std::move(tensors), ShardMetadata()))));
  for (size_t i = 0; i < writer.header().tensors.size(); ++i) {
    RequireOk(writer.Write(i, 0, shard.At(writer.header().tensors[i].name).bytes));
  }
}

void Mutant::DropPart(PartRole role) {
  const std::string name = PartName(packed_, role);
  RewriteShard([&](TestCheckpoint& shard) { shard.Remove(module_ + "." + name); });
  Edit([&](Manifest& manifest) { manifest.modules.at(module_).parts.erase(name); });
}

void Mutant::AddOrder(const std::vector<int32_t>& order) {
  const std::string name = module_ + ".input_order";
  RewriteShard([&](TestCheckpoint& shard) {
    shard.tensors.push_back({name, "I32", {order.size()}, AsBytes(order)});
  });
  Edit([&](Manifest& manifest) {
    manifest.modules.at(module_).parts["input_order"] = {.tensor = name,
                                                         .file = "model.safetensors",
                                                         .offset = 0,
                                                         .dtype = DType::kI32,
                                                         .shape = {order.size()},
                                                         .xxh3_128 = {}};
  });
}

void Mutant::Edit(const std::function<void(Manifest& manifest)>& edit) {
  constexpr size_t kTail = 32 + std::string_view("\"\n}\n").size();  // the hash, and what is behind
  const std::string before = ManifestText(manifest_);
  edit(manifest_);
  std::string text = ManifestText(manifest_);
  text.replace(text.size() - kTail, kTail, before, before.size() - kTail, kTail);
  std::ofstream(folder_path_ / kManifestName) << text;
}

void Mutant::FlipPassedThrough() {
  FlipBits(folder_path_, folder_.manifest().tensors.front(), 0, 1);
}

void Mutant::CutShard(uint64_t bytes) {
  std::filesystem::resize_file(Shard(), std::filesystem::file_size(Shard()) - bytes);
}

void Mutant::Rehash() {
  const File file = Value(File::OpenForRead(Shard()));
  FileRecord& record = manifest_.files.at("model.safetensors");
  Progress progress;
  const Result<SafetensorsHeader> header = ReadSafetensorsHeader(file);
  if (header.ok()) {
    const ShardHashes hashes = HashesOfShard(file, *header);
    record = hashes.file;
    for (auto& [name, module] : manifest_.modules) {
      for (auto& [part, tensor] : module.parts) Locate(*header, hashes, tensor);
    }
    for (TensorRecord& tensor : manifest_.tensors) Locate(*header, hashes, tensor);
  } else {  // cut: nothing but the file as a whole can be made to agree
    record = Value(HashFile(file, progress));
  }
  WriteManifest(folder_path_, manifest_);
}

namespace {

// The codes of the weight where the closed form says that they are.
class PackedCodes {
 public:
  explicit PackedCodes(const Mutant& mutant)
      : bytes(mutant.Part(PartRole::kWeight)),
        width(prepack::CodeBits(mutant.request().scheme.code)),
        mutant_(mutant) {}

  uint64_t Bit(uint64_t n, uint64_t k) const {
    return mutant_.layout().weight_bit(mutant_.request(), n, k);
  }
  unsigned Get(uint64_t bit) const {
    const auto byte = std::to_integer<unsigned>(bytes[bit / 8]);
    if (width == 4) return byte >> (bit % 8) & 15U;
    return width == 8 ? byte : byte | std::to_integer<unsigned>(bytes[bit / 8 + 1]) << 8;
  }
  void Set(uint64_t bit, unsigned code) {
    std::byte& byte = bytes[bit / 8];
    if (width == 4) {
      byte &= static_cast<std::byte>(0xF0U >> (bit % 8));
      byte |= static_cast<std::byte>(code << (bit % 8));
      return;
    }
    byte = static_cast<std::byte>(code & 0xFFU);
    if (width == 16) bytes[bit / 8 + 1] = static_cast<std::byte>(code >> 8);
  }
  // The first bit of every code, in order of n, then k.
  std::vector<uint64_t> All() const {
    std::vector<uint64_t> bits;
    for (uint64_t n = 0; n < mutant_.request().n; ++n) {
      for (uint64_t k = 0; k < mutant_.request().k; ++k) bits.push_back(Bit(n, k));
    }
    return bits;
  }
  // The bytes that hold no code: sums, as these modules need no padding.
  std::vector<size_t> Rest() const {
    std::vector<bool> covered(bytes.size());
    for (const uint64_t bit : All()) {
      for (uint64_t b = bit; b < bit + width; b += 4) covered[b / 8] = true;
    }
    std::vector<size_t> rest;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (!covered[i]) rest.push_back(i);
    }
    return rest;
  }

  Bytes bytes;
  const uint32_t width;

 private:
  const Mutant& mutant_;
};

bool SwapAllNibbles(Mutant& mutant) {
  PackedCodes codes(mutant);
  if (codes.width != 4) return false;
  const PackedCodes before(mutant);
  for (const uint64_t bit : codes.All()) codes.Set(bit ^ 4U, before.Get(bit));
  return mutant.SetPart(PartRole::kWeight, codes.bytes);
}

bool SwapTwoNibbles(Mutant& mutant) {
  PackedCodes codes(mutant);
  if (codes.width != 4) return false;
  for (const uint64_t bit : codes.All()) {
    const unsigned here = codes.Get(bit);
    const unsigned there = codes.Get(bit ^ 4U);
    if (here == there) continue;
    codes.Set(bit, there);
    codes.Set(bit ^ 4U, here);
    return mutant.SetPart(PartRole::kWeight, codes.bytes);
  }
  return false;
}

// Downwards, so that no FP8 number becomes a NaN.
bool ChangeOneCode(Mutant& mutant) {
  PackedCodes codes(mutant);
  for (const uint64_t bit : codes.All()) {
    const unsigned code = codes.Get(bit);
    if (code % 2 == 0) continue;
    codes.Set(bit, code - 1);
    return mutant.SetPart(PartRole::kWeight, codes.bytes);
  }
  return false;
}

// Of four bits.
uint8_t OneLess(uint8_t zero) {
  return static_cast<uint8_t>((zero + 15) % 16);
}

// As when zero points of a checkpoint that stores them one less are taken as they are.
bool ShiftAllZeroPoints(Mutant& mutant) {
  if (!mutant.Has(PartRole::kZeroPoint)) return false;
  std::vector<uint8_t> zero_points = mutant.ZeroPoints();
  for (uint8_t& zero : zero_points) zero = OneLess(zero);
  return mutant.SetZeroPoints(zero_points);
}

bool ShiftOneZeroPoint(Mutant& mutant) {
  if (!mutant.Has(PartRole::kZeroPoint)) return false;
  std::vector<uint8_t> zero_points = mutant.ZeroPoints();
  zero_points.back() = OneLess(zero_points.back());
  return mutant.SetZeroPoints(zero_points);
}

bool ShiftScalesByOneChannel(Mutant& mutant) {
  if (!mutant.Has(PartRole::kScale)) return false;
  std::vector<float> scales = mutant.Scales();
  const auto row = static_cast<std::ptrdiff_t>(mutant.request().groups());
  std::rotate(scales.begin(), scales.end() - row, scales.end());
  return mutant.SetScales(scales);
}

// As when the kernel's groups were twice as large as those of the codes.
bool TakeScalesOfDoubledGroups(Mutant& mutant) {
  if (!mutant.Has(PartRole::kScale)) return false;
  const std::vector<float> scales = mutant.Scales();
  std::vector<float> doubled = scales;
  const uint64_t groups = mutant.request().groups();
  for (uint64_t i = 0; i < doubled.size(); ++i) {
    doubled[i] = scales[i / groups * groups + i % groups / 2];
  }
  return mutant.SetScales(doubled);
}

bool TruncateScales(Mutant& mutant) {
  const Layout& layout = mutant.layout();
  const bool rounded = mutant.Has(PartRole::kScale) &&
                       layout.scales.value.Of(mutant.request()) == DType::kBF16 &&
                       mutant.request().stored_scale_dtype != DType::kBF16;
  if (!rounded) return false;
  const Checkpoint source = Value(Checkpoint::Open(mutant.source()));
  const QuantizedModel model = Value(ReadQuantizedModel(source));
  std::vector<float> scales = mutant.Scales();
  RequireOk(model.Find(mutant.module())->ReadScales(0, mutant.request().n, scales));
  for (float& scale : scales) {
    scale = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) & 0xFFFF0000U);
  }
  return mutant.SetScales(scales);
}

// With all that stands beside the codes.
bool ExchangeBlocks(Mutant& mutant) {
  const Layout& layout = mutant.layout();
  const PackRequest& request = mutant.request();
  const uint64_t rows = std::lcm(layout.cut(request).rows, uint64_t{32});
  const PanelRange first{.n0 = 0, .rows = rows, .k0 = 0, .cols = request.k};
  const PanelRange second{.n0 = rows, .rows = rows, .k0 = 0, .cols = request.k};
  REQUIRE(2 * rows <= request.n);
  const Bytes before = mutant.Part(PartRole::kWeight);
  const auto gather = [&](const Placement& placement) {
    Bytes packed;
    RequireOk(ForPieces(placement, [&](uint64_t offset, uint64_t bytes) {
      const auto from = before.begin() + static_cast<std::ptrdiff_t>(offset);
      packed.insert(packed.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
      return Status();
    }));
    return packed;
  };
  const Placement here = layout.place_weight(request, first);
  const Placement there = layout.place_weight(request, second);
  const Bytes half = Scattered(here, gather(there), before);
  return mutant.SetPart(PartRole::kWeight, Scattered(there, gather(here), half));
}

bool ChangeOneSum(Mutant& mutant) {
  PackedCodes codes(mutant);
  const std::vector<size_t> sums = codes.Rest();
  if (sums.empty()) return false;
  codes.bytes[sums.front()] ^= std::byte{1};
  return mutant.SetPart(PartRole::kWeight, codes.bytes);
}

bool DropSums(Mutant& mutant) {
  PackedCodes codes(mutant);
  for (const size_t at : codes.Rest()) codes.bytes[at] = std::byte{0};
  return mutant.SetPart(PartRole::kWeight, codes.bytes);
}

bool ChangeOneChannelSum(Mutant& mutant) {
  if (!mutant.Has(PartRole::kWeightSum)) return false;
  Bytes sums = mutant.Part(PartRole::kWeightSum);
  sums.front() ^= std::byte{1};
  return mutant.SetPart(PartRole::kWeightSum, sums);
}

bool DropChannelSums(Mutant& mutant) {
  if (!mutant.Has(PartRole::kWeightSum)) return false;
  return mutant.SetPart(PartRole::kWeightSum, Bytes(mutant.Part(PartRole::kWeightSum).size()));
}

bool MakeOrderIdentity(Mutant& mutant) {
  if (!mutant.Has(PartRole::kInputOrder)) return false;
  std::vector<int32_t> order(mutant.request().k);
  std::iota(order.begin(), order.end(), 0);
  return mutant.SetPart(PartRole::kInputOrder, AsBytes(order));
}

bool MakeUpOrder(Mutant& mutant) {
  if (mutant.Has(PartRole::kInputOrder)) return false;
  std::vector<int32_t> order(mutant.request().k);
  std::iota(order.rbegin(), order.rend(), 0);
  mutant.AddOrder(order);
  return true;
}

bool DropOrder(Mutant& mutant) {
  if (!mutant.Has(PartRole::kInputOrder)) return false;
  mutant.DropPart(PartRole::kInputOrder);
  return true;
}

bool ShiftBias(Mutant& mutant) {
  Bytes bias = mutant.Part(PartRole::kBias);
  const auto channel = static_cast<std::ptrdiff_t>(bias.size() / mutant.request().n);
  std::rotate(bias.begin(), bias.end() - channel, bias.end());
  return mutant.SetPart(PartRole::kBias, bias);
}

bool DropBias(Mutant& mutant) {
  mutant.DropPart(PartRole::kBias);
  return true;
}

bool DoubleInputScale(Mutant& mutant) {
  if (!mutant.Has(PartRole::kInputScale)) return false;
  float scale = 0;
  Bytes bytes = mutant.Part(PartRole::kInputScale);
  std::memcpy(&scale, bytes.data(), sizeof scale);
  scale *= 2;
  std::memcpy(bytes.data(), &scale, sizeof scale);
  return mutant.SetPart(PartRole::kInputScale, bytes);
}

bool TakeWeightOfOther(Mutant& mutant) {
  return mutant.SetPart(PartRole::kWeight, mutant.PartOfOther(PartRole::kWeight));
}

bool TakeScalesOfOther(Mutant& mutant) {
  return mutant.Has(PartRole::kScale) &&
         mutant.SetPart(PartRole::kScale, mutant.PartOfOther(PartRole::kScale));
}

bool LoseEndOfWeight(Mutant& mutant) {
  Bytes weight = mutant.Part(PartRole::kWeight);
  std::fill(weight.end() - static_cast<std::ptrdiff_t>(weight.size() / 4), weight.end(),
            std::byte{0});
  return mutant.SetPart(PartRole::kWeight, weight);
}

bool CutFile(Mutant& mutant) {
  mutant.CutShard(64);
  return true;
}

bool HalveGroupSize(Mutant& mutant) {
  if (mutant.request().scheme.granularity != Granularity::kGroup) return false;
  mutant.Edit(
      [&](Manifest& manifest) { manifest.modules.at(mutant.module()).scheme.group_size /= 2; });
  return true;
}

// As long as the parts have the same shapes, so that nothing but the numbers can tell.
bool ClaimOneScale(Mutant& mutant) {
  PackRequest claimed = mutant.request();
  if (!mutant.Has(PartRole::kScale) || claimed.scheme.granularity == Granularity::kTensor) {
    return false;
  }
  claimed.scheme.granularity = Granularity::kTensor;
  claimed.scheme.group_size = claimed.k;
  claimed.scheme.scale_rows = claimed.n;
  const Layout& layout = mutant.layout();
  if (!layout.eligible(claimed).ok) return false;
  const std::vector<PartSpec> parts = layout.Parts(mutant.request());
  const bool same =
      std::ranges::equal(layout.Parts(claimed), parts, {}, &PartSpec::shape, &PartSpec::shape);
  if (!same) return false;
  mutant.Edit(
      [&](Manifest& manifest) { manifest.modules.at(mutant.module()).scheme = claimed.scheme; });
  return true;
}

bool FlipPassedThrough(Mutant& mutant) {
  mutant.FlipPassedThrough();
  return true;
}

// One code, downwards, of a source of whatever format: the lowest bit of a byte of its weight.
bool ChangeSource(Mutant& mutant) {
  const std::filesystem::path path = mutant.source() / "model.safetensors";
  uint64_t begin = 0;
  uint64_t end = 0;
  {
    const Checkpoint source = Value(Checkpoint::Open(mutant.source()));
    const QuantizedModel model = Value(ReadQuantizedModel(source));
    for (const std::string_view name : model.Find(mutant.module())->source_tensors()) {
      const StoredTensor& tensor = *source.Find(name);
      if (tensor.bytes <= end - begin) continue;
      begin = tensor.offset;
      end = tensor.offset + tensor.bytes;
    }
  }
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (uint64_t at = (begin + end) / 2; at < end; ++at) {
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    if (byte % 2 == 0) continue;
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte - 1));
    return file.good();
  }
  return false;
}

constexpr auto kMutations = std::to_array<Mutation>({
    {"nibbles swapped in every byte", SwapAllNibbles},
    {"nibbles swapped in one byte", SwapTwoNibbles},
    {"one code off by one", ChangeOneCode},
    {"every zero point off by one", ShiftAllZeroPoints},
    {"one zero point off by one", ShiftOneZeroPoint},
    {"scales shifted by one channel", ShiftScalesByOneChannel},
    {"scales of groups twice as large", TakeScalesOfDoubledGroups},
    {"scales truncated", TruncateScales},
    {"scales of another module", TakeScalesOfOther},
    {"two blocks of channels exchanged", ExchangeBlocks},
    {"one sum beside the codes off by one", ChangeOneSum},
    {"sums beside the codes dropped", DropSums},
    {"one sum of a channel off in its last bit", ChangeOneChannelSum},
    {"sums of the channels dropped", DropChannelSums},
    {"order of inputs replaced by none", MakeOrderIdentity},
    {"order of inputs dropped", DropOrder},
    {"order of inputs made up", MakeUpOrder},
    {"bias shifted by one channel", ShiftBias},
    {"bias dropped", DropBias},
    {"static scale of activations doubled", DoubleInputScale},
    {"weight of another module", TakeWeightOfOther},
    {"last quarter of the weight lost", LoseEndOfWeight},
    {"file cut", CutFile},
    {"group size halved in the manifest", HalveGroupSize},
    {"one scale for all claimed in the manifest", ClaimOneScale},
    {"a tensor that passes through changed", FlipPassedThrough},
    {"one code of the source changed", ChangeSource},
});

}  // namespace

std::span<const Mutation> AllMutations() {
  return kMutations;
}

}  // namespace prepack::testing
