#include "inspect_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "json_reports.h"
#include "table.h"
#include "units.h"

namespace prepack::cli {
namespace {

Result<uint64_t> ParseNumber(std::string_view option, const std::string& text) {
  if (const std::optional<uint64_t> value = ParseCount(text)) return *value;
  return Usage(option, "not a number").Found(text).Expected("0, 1, …, or hexadecimal: 0x1f");
}

// "bits 4-7", "bit 3"; of whole bytes "bytes 2" with how many.
std::string BitsText(uint32_t bit, uint32_t bits) {
  if (bit == 0 && bits == 8) return "whole";
  if (bit == 0 && bits == 4) return "low nibble";
  if (bit == 4 && bits == 4) return "high nibble";
  if (bit == 0 && bits % 8 == 0) return fmt::format("{} bytes", bits / 8);
  if (bits == 1) return fmt::format("bit {}", bit);
  return fmt::format("bits {}-{}", bit, bit + bits - 1);
}

std::string SideText(std::string_view title, const FoundWeight& found) {
  std::string text = fmt::format("\n{}: {}, {}", title, Printable(found.path), found.form);
  if (title == "packed") {
    text += fmt::format(", {} ({}, {})", Printable(found.module), found.n, found.position);
  }
  text += "\n";
  Table table({{""},
               {"value", Align::kRight},
               {"stored", Align::kRight},
               {"file"},
               {"byte", Align::kRight},
               {"of it"},
               {"tensor"},
               {"byte", Align::kRight}});
  for (const NumberInFile& number : found.numbers) {
    bool is_first = true;
    for (const BitsInFile& bits : number.where) {
      table.AddRow({is_first ? std::string(number.what) : "",
                    is_first ? fmt::format("{:g}", number.value) : "",
                    is_first ? fmt::format("0x{:x}", number.stored) : "", Printable(bits.file),
                    fmt::format("{}", bits.offset), BitsText(bits.bit, bits.bits),
                    Printable(bits.tensor), fmt::format("{}", bits.in_tensor)});
      is_first = false;
    }
  }
  return text + table.Render(2) + fmt::format("  weight {:g}\n", found.weight);
}

Json SideJson(const std::optional<FoundWeight>& found) {
  if (!found) return nullptr;
  Json numbers = Json::array();
  for (const NumberInFile& number : found->numbers) {
    Json where = Json::array();
    for (const BitsInFile& bits : number.where) {
      where.push_back({{"file", bits.file},
                       {"offset", bits.offset},
                       {"tensor", bits.tensor},
                       {"offset_in_tensor", bits.in_tensor},
                       {"bit", bits.bit},
                       {"bits", bits.bits}});
    }
    numbers.push_back({{"what", number.what},
                       {"value", JsonNumber(number.value)},
                       {"stored", number.stored},
                       {"where", std::move(where)}});
  }
  return {{"path", found->path},
          {"form", found->form},
          {"module", found->module},
          {"n", found->n},
          {"position", found->position},
          {"group", found->group},
          {"weight", JsonNumber(found->weight)},
          {"numbers", std::move(numbers)}};
}

std::string HeldText(const HeldNumber& number) {
  std::string text = number.rows == 1
                         ? fmt::format("n {}", number.n)
                         : fmt::format("n {} to {}", number.n, number.n + number.rows - 1);
  if (number.k) text += fmt::format(", k {}", *number.k);
  if (number.g) text += fmt::format(", group {}", *number.g);
  return text;
}

}  // namespace

Result<FoundSides> FindSides(const std::string& path, const std::string& source,
                             const std::vector<std::string>& wanted) {
  FoundSides found{.module = wanted.at(0)};
  const Result<uint64_t> n = ParseNumber("--find", wanted.at(1));
  if (!n.ok()) return n.status();
  const Result<uint64_t> k = ParseNumber("--find", wanted.at(2));
  if (!k.ok()) return k.status();
  found.n = *n;
  found.k = *k;
  const auto show = [&](const OpenedFolder& folder) {
    return FindWeight(folder, found.module, *n, *k);
  };
  // A packed module that was fused is several of the source: its own channel says which.
  const auto show_source = [&](const OpenedFolder& origin, const FoundWeight& packed,
                               const ModuleRecord& record) {
    std::string module = packed.module;
    uint64_t row = packed.n;
    for (const FusedMember& member : record.fused) {
      module = member.module;
      if (row < member.n) break;
      row -= member.n;
    }
    return FindWeight(origin, module, row, *k);
  };
  Result<Sides<FoundWeight>> sides = ShowSides<FoundWeight>(path, source, show, show_source);
  if (!sides.ok()) return sides.status();
  found.sides = *std::move(sides);
  return found;
}

Result<ByteContents> ContentsAt(const std::string& path, const std::string& wanted) {
  const size_t colon = wanted.rfind(':');
  if (colon == std::string::npos) {
    return Usage("--at", "the offset is missing").Found(wanted).Expected("FILE:OFFSET");
  }
  const Result<uint64_t> offset = ParseNumber("--at", wanted.substr(colon + 1));
  if (!offset.ok()) return offset.status();
  const Result<OpenedFolder> folder = OpenedFolder::Open(path);
  if (!folder.ok()) return folder.status();
  return ReadByteContents(*folder, wanted.substr(0, colon), *offset);
}

std::string FoundText(const FoundSides& found) {
  const FoundWeight& any = found.sides.source ? *found.sides.source : *found.sides.packed;
  std::string text = fmt::format("{}: output channel {}, input channel {}, group {}\n",
                                 Printable(found.module), found.n, found.k, any.group);
  if (found.sides.source) text += SideText("source", *found.sides.source);
  if (found.sides.packed) text += SideText("packed", *found.sides.packed);
  if (!found.sides.source)
    text += "\nThe source is not where the manifest says: name it by --source\n";
  return text;
}

Json FoundJson(const std::string& path, const FoundSides& found) {
  Json json = JsonDocument("prepack-inspect-find");
  json["path"] = path;
  json["module"] = found.module;
  json["n"] = found.n;
  json["k"] = found.k;
  json["source"] = SideJson(found.sides.source);
  json["packed"] = SideJson(found.sides.packed);
  return json;
}

std::string ContentsText(const ByteContents& contents) {
  std::string text = fmt::format("{}, byte {}: 0x{:02x}, {}\n", Printable(contents.file),
                                 contents.offset, contents.byte, contents.holds);
  if (!contents.tensor) return text;
  const StoredTensor& tensor = *contents.tensor;
  text += fmt::format("  tensor {}, {} {}, byte {} of it, element [{}]\n", Printable(tensor.name),
                      DTypeName(tensor.dtype), ShapeText(tensor.shape),
                      contents.offset - tensor.offset, fmt::join(contents.element, ", "));
  if (!contents.module.empty()) {
    text += fmt::format("  module {}, {}\n", Printable(contents.module), Printable(contents.form));
  }
  for (const HeldNumber& number : contents.numbers) {
    const uint32_t stored = contents.byte >> number.bit & ((1U << number.bits) - 1);
    text += fmt::format("  {:<11}  0x{:x}  {} of {}\n", BitsText(number.bit, number.bits), stored,
                        contents.holds, HeldText(number));
  }
  return text;
}

Json ContentsJson(const std::string& path, const ByteContents& contents) {
  Json json = JsonDocument("prepack-inspect-at");
  json["path"] = path;
  json["file"] = contents.file;
  json["offset"] = contents.offset;
  json["byte"] = contents.byte;
  json["holds"] = contents.holds;
  json["module"] = contents.module.empty() ? Json(nullptr) : Json(contents.module);
  json["form"] = contents.form.empty() ? Json(nullptr) : Json(contents.form);
  json["tensor"] = nullptr;
  if (contents.tensor) {
    const StoredTensor& tensor = *contents.tensor;
    json["tensor"] = {{"name", tensor.name},
                      {"dtype", DTypeName(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"offset_in_tensor", contents.offset - tensor.offset},
                      {"element", contents.element}};
  }
  Json& numbers = json["numbers"] = Json::array();
  for (const HeldNumber& number : contents.numbers) {
    numbers.push_back({{"n", number.n},
                       {"channels", number.rows},
                       {"k", number.k ? Json(*number.k) : Json(nullptr)},
                       {"group", number.g ? Json(*number.g) : Json(nullptr)},
                       {"bit", number.bit},
                       {"bits", number.bits}});
  }
  return json;
}

}  // namespace prepack::cli
