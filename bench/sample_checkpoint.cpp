#include "sample_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/container/safetensors.h"
#include "prepack/io/file.h"

namespace prepack::bench {
namespace {

// What is in memory at a time. Groups and shapes come in one piece: K is at most a quarter of it.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxInputs = kPieceBytes / 4;

// A tensor to write.
struct Item {
  std::string name;
  SampleTensor tensor;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t seed = 0;
  uint64_t bytes = 0;
};

Status AddItem(Item item, std::vector<Item>& items) {
  const std::optional<uint64_t> bytes = TensorBytes(item.tensor.dtype, item.tensor.shape);
  if (!bytes) return Usage(item.name, "the tensor is too large");
  item.bytes = *bytes;
  items.push_back(std::move(item));
  return {};
}

Status CheckModule(const SampleModule& module, const SampleFormat& format) {
  const uint64_t n_multiple = std::min(format.k_multiple, kSampleGroup);
  if (module.n == 0 || module.k == 0 || module.n % n_multiple != 0 ||
      module.k % format.k_multiple != 0 || module.k > kMaxInputs) {
    return Usage(module.name, fmt::format("the shape does not suit {}", format.id))
        .Found(fmt::format("[{}, {}]", module.n, module.k))
        .Expected(fmt::format("N a multiple of {}, K one of {} up to {}", n_multiple,
                              format.k_multiple, kMaxInputs));
  }
  return {};
}

// Every module and plain tensor has a seed of its own, which only its place in the list decides.
Result<std::vector<Item>> ListItems(const SampleCheckpoint& checkpoint) {
  std::vector<Item> items;
  SplitMix64 seeds(checkpoint.seed);
  for (const SampleModule& module : checkpoint.modules) {
    Status status = CheckModule(module, checkpoint.format);
    if (!status.ok()) return status;
    const uint64_t seed = seeds.Next();
    for (const SampleTensor& tensor : checkpoint.format.tensors(module.n, module.k)) {
      const std::string name = module.name + '.' + tensor.suffix;
      status = AddItem({name, tensor, module.n, module.k, seed}, items);
      if (!status.ok()) return status;
    }
  }
  for (const PlainTensor& plain : checkpoint.plain) {
    const SampleTensor tensor = {
        .suffix = {}, .dtype = plain.dtype, .shape = plain.shape, .content = plain.content};
    Status status = AddItem({plain.name, tensor, 0, 0, seeds.Next()}, items);
    if (!status.ok()) return status;
  }
  return items;
}

// Consecutive shards of about the same size, none of them empty.
Result<std::vector<std::span<Item>>> Split(std::vector<Item>& items, uint64_t shards) {
  if (shards == 0 || shards > items.size()) {
    return Usage("shards", "there are not as many tensors")
        .Found(fmt::format("{} shards, {} tensors", shards, items.size()));
  }
  uint64_t total = 0;
  for (const Item& item : items) total += item.bytes;
  const uint64_t share = CeilDiv(total, shards);
  std::vector<std::span<Item>> parts;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    bytes += items[i].bytes;
    const uint64_t after = shards - parts.size() - 1;  // shards that follow this one
    const size_t left = items.size() - i - 1;
    const bool full = bytes >= share * (parts.size() + 1);
    if (left == after || (full && after != 0)) {
      parts.push_back(std::span(items).subspan(begin, i + 1 - begin));
      begin = i + 1;
    }
  }
  return parts;
}

bool InFileBefore(const Item& a, const Item& b) {
  const uint32_t a_bits = DTypeBits(a.tensor.dtype);
  const uint32_t b_bits = DTypeBits(b.tensor.dtype);
  return a_bits != b_bits ? a_bits > b_bits : a.name < b.name;
}

// Eight bytes of length, the header, and blanks up to a multiple of eight.
std::string HeaderBytes(std::span<const Item> items) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  uint64_t begin = 0;
  for (const Item& item : items) {
    text += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", item.name,
                        DTypeName(item.tensor.dtype), fmt::join(item.tensor.shape, ","), begin,
                        begin + item.bytes);
    begin += item.bytes;
  }
  text += '}';
  text.resize(*CheckedAlignUp(text.size(), 8), ' ');
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return bytes + text;
}

Status WriteTensor(const Item& item, uint64_t offset, File& file) {
  std::vector<std::byte> piece(std::min(kPieceBytes, item.bytes));
  ContentFiller filler(item.tensor, item.n, item.k, item.seed);
  for (uint64_t at = 0; at < item.bytes; at += piece.size()) {
    const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), item.bytes - at));
    filler.Fill(part);
    Status status = file.WriteAt(offset + at, part);
    if (!status.ok()) return status;
  }
  return {};
}

Status WriteShard(const std::filesystem::path& path, std::span<Item> items, bool sparse) {
  std::ranges::sort(items, InFileBefore);
  const std::string header = HeaderBytes(items);
  if (header.size() > kMaxHeaderBytes) {
    return Usage(path.string(), "the header is longer than the format allows")
        .Found(fmt::format("{} tensors", items.size()))
        .Hint("Spread them over more shards");
  }
  Result<File> file = File::CreateNew(path);
  if (!file.ok()) return file.status();
  Status status = file->WriteAt(0, std::as_bytes(std::span(header)));
  if (!status.ok()) return status;
  uint64_t offset = header.size();
  for (const Item& item : items) {
    if (!sparse || !IsBulk(item.tensor.content)) {
      status = WriteTensor(item, offset, *file);
      if (!status.ok()) return status;
    }
    offset += item.bytes;
  }
  // What was left out at the end is a hole, too.
  std::error_code error;
  std::filesystem::resize_file(path, offset, error);
  if (error) return SystemError(path.string(), "cannot extend the file", error.value());
  return {};
}

Status WriteIndex(const std::filesystem::path& folder, std::span<const std::span<Item>> shards,
                  std::span<const std::string> names) {
  uint64_t total = 0;
  std::string map;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (const Item& item : shards[shard]) {
      total += item.bytes;
      map += fmt::format("{}\n    \"{}\": \"{}\"", map.empty() ? "" : ",", item.name, names[shard]);
    }
  }
  return WriteTextFile(
      folder / "model.safetensors.index.json",
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n",
                  total, map));
}

std::string ShardName(size_t shard, size_t count) {
  return count == 1 ? "model.safetensors"
                    : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

}  // namespace

Status WriteCheckpoint(const std::filesystem::path& folder, const SampleCheckpoint& checkpoint) {
  Result<std::vector<Item>> items = ListItems(checkpoint);
  if (!items.ok()) return items.status();
  const Result<std::vector<std::span<Item>>> shards = Split(*items, checkpoint.shards);
  if (!shards.ok()) return shards.status();
  Json config = checkpoint.config;
  Json& quantization = config["quantization_config"];
  quantization = checkpoint.format.config();
  if (quantization.contains("ignore")) quantization["ignore"] = checkpoint.ignored;
  Status status = WriteTextFile(folder / "config.json", config.dump(2));
  std::vector<std::string> names;
  for (const std::span<Item> shard : *shards) {
    if (!status.ok()) return status;
    names.push_back(ShardName(names.size(), shards->size()));
    status = WriteShard(folder / names.back(), shard, checkpoint.sparse);
  }
  if (!status.ok() || names.size() == 1) return status;
  return WriteIndex(folder, *shards, names);
}

Status WriteSample(const std::filesystem::path& folder, const SampleFormat& format, uint64_t n,
                   uint64_t k, uint64_t modules, uint64_t seed) {
  SampleCheckpoint checkpoint;
  checkpoint.format = format;
  checkpoint.seed = seed;
  for (uint64_t layer = 0; layer < modules; ++layer) {
    checkpoint.modules.push_back({fmt::format("model.layers.{}.mlp.down_proj", layer), n, k});
  }
  return WriteCheckpoint(folder, checkpoint);
}

}  // namespace prepack::bench
