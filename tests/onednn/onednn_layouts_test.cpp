// The bytes of the onednn layouts against those that oneDNN's own reorders write.

#include <algorithm>
#include <dnnl.hpp>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "golden_file.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/gemm/onednn/query.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

using dnnl::memory;

struct Shape {
  uint64_t k;
  uint64_t n;
};

// Single rows and columns, primes, multiples of the blocks, one more and one less.
constexpr Shape kShapes[] = {{1, 1},    {1, 7},    {5, 1},     {4, 4},    {3, 5},     {16, 16},
                             {15, 17},  {31, 33},  {48, 24},   {63, 65},  {64, 64},   {65, 63},
                             {70, 100}, {1, 64},   {64, 1},    {127, 97}, {128, 192}, {129, 191},
                             {193, 48}, {257, 31}, {320, 129}, {97, 257}};

struct NamedTag {
  const char* name;
  memory::format_tag tag;
};

// All public tags of two dimensions.
#define PREPACK_TAG(tag) \
  { #tag, memory::format_tag::tag }
constexpr NamedTag kTags[] = {
    PREPACK_TAG(ab),           PREPACK_TAG(ba),          PREPACK_TAG(AB16b16a),
    PREPACK_TAG(AB16b32a),     PREPACK_TAG(AB16b48a),    PREPACK_TAG(AB16b64a),
    PREPACK_TAG(AB8b16a2b),    PREPACK_TAG(AB8b32a2b),   PREPACK_TAG(AB8b64a2b),
    PREPACK_TAG(AB4b16a4b),    PREPACK_TAG(AB4b32a4b),   PREPACK_TAG(AB4b64a4b),
    PREPACK_TAG(AB16b16a4b),   PREPACK_TAG(AB16b32a4b),  PREPACK_TAG(AB16b48a4b),
    PREPACK_TAG(AB16b64a4b),   PREPACK_TAG(AB16b16a2b),  PREPACK_TAG(AB16b32a2b),
    PREPACK_TAG(AB16b48a2b),   PREPACK_TAG(AB16b64a2b),  PREPACK_TAG(Ab4a),
    PREPACK_TAG(Ab8a),         PREPACK_TAG(Ab32a),       PREPACK_TAG(AB32a32b8a4b),
    PREPACK_TAG(AB32a32b8a2b), PREPACK_TAG(AB8a4b),      PREPACK_TAG(AB8a2b),
    PREPACK_TAG(AB48a16b),     PREPACK_TAG(AB48a32b),    PREPACK_TAG(BA16a16b),
    PREPACK_TAG(BA16a32b),     PREPACK_TAG(BA16a48b),    PREPACK_TAG(BA16a64b),
    PREPACK_TAG(BA16a16b2a),   PREPACK_TAG(BA16a32b2a),  PREPACK_TAG(BA16a48b2a),
    PREPACK_TAG(BA16a64b2a),   PREPACK_TAG(BA16a16b4a),  PREPACK_TAG(BA16a32b4a),
    PREPACK_TAG(BA16a48b4a),   PREPACK_TAG(BA16a64b4a),  PREPACK_TAG(BA24b8a),
    PREPACK_TAG(BA12b8a),      PREPACK_TAG(AB8b32a),     PREPACK_TAG(AB8b24a),
    PREPACK_TAG(AB8b16a),      PREPACK_TAG(AB8b8a),      PREPACK_TAG(BA8b8a),
    PREPACK_TAG(BA16b8a),      PREPACK_TAG(BA4b8a),      PREPACK_TAG(AB2a4b),
    PREPACK_TAG(AB32a16b),     PREPACK_TAG(AB32a32b),    PREPACK_TAG(BA4b8a8b2a),
    PREPACK_TAG(BA4b8a8b4a),   PREPACK_TAG(BA4b8a16b2a), PREPACK_TAG(BA4b8a16b4a),
    PREPACK_TAG(BA16b2a),      PREPACK_TAG(BA16b4a),     PREPACK_TAG(BA4b4a),
    PREPACK_TAG(BA8b4a),       PREPACK_TAG(AB16a16b),    PREPACK_TAG(AB16a32b),
    PREPACK_TAG(AB4b8a4b),     PREPACK_TAG(AB4b24a4b),   PREPACK_TAG(AB8b24a2b),
    PREPACK_TAG(AB8b8a2b),     PREPACK_TAG(BA2a24b),     PREPACK_TAG(BA2a8b),
    PREPACK_TAG(BA8a24b),      PREPACK_TAG(BA8a16b),     PREPACK_TAG(BA8a8b)};
#undef PREPACK_TAG

// What oneDNN's int8 kernels for x86 ask for.
const std::set<std::string> kNeededTags = {"ab",         "ba",         "BA16a16b4a",
                                           "BA16a32b4a", "BA16a48b4a", "BA16a64b4a"};

memory::dims Dims(const Shape& shape) {
  return {static_cast<memory::dim>(shape.k), static_cast<memory::dim>(shape.n)};
}

memory::desc Tagged(const Shape& shape, memory::format_tag tag) {
  return {Dims(shape), memory::data_type::s8, tag};
}

class OneDnn {
 public:
  OneDnn() : engine_(MakeEngine()), stream_(engine_) {}

  // Plain [K, N] `from`, elements of `type`, as oneDNN writes it in the form `to`; nothing where
  // oneDNN has no such reorder.
  template <typename T>
  std::vector<std::byte> Reordered(std::vector<T> from, memory::data_type type,
                                   const memory::desc& to) {
    const memory::desc plain(to.get_dims(), type, memory::format_tag::ab);
    const dnnl::reorder::primitive_desc description(engine_, plain, engine_, to, {},
                                                    /*allow_empty=*/true);
    if (!description) return {};
    std::vector<std::byte> packed(to.get_size(), std::byte{0x55});  // no byte may be left out
    memory source(plain, engine_, from.data());
    memory result(to, engine_, packed.data());
    dnnl::reorder(description).execute(stream_, source, result);
    stream_.wait();
    return packed;
  }

 private:
  static dnnl::engine MakeEngine() {
    PrepareOneDnnRuntime();
    return {dnnl::engine::kind::cpu, 0};
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
};

PackRequest W8A8Request(const Shape& shape) {
  PackRequest request;
  request.scheme = {.code = CodeType::kS8,
                    .bits = 8,
                    .granularity = Granularity::kChannel,
                    .group_size = shape.k,
                    .symmetric = true,
                    .activations = {.type = ActivationType::kInt, .bits = 8}};
  request.n = shape.n;
  request.k = shape.k;
  return request;
}

// Codes of every value, both ends among them.
Probe RandomCodes(const Shape& shape) {
  SplitMix64 random(1000 * shape.k + shape.n);
  Probe probe;
  for (uint64_t i = 0; i < shape.k * shape.n; ++i) {
    const uint64_t code = i == 0 ? 0x80 : i == 1 ? 0x7F : random.Below(256);
    probe.codes.push_back(static_cast<std::byte>(code));
  }
  return probe;
}

// [N, K] → [K, N].
std::vector<int8_t> Transposed(const Shape& shape, const std::vector<std::byte>& codes) {
  std::vector<int8_t> matrix(codes.size());
  for (uint64_t k = 0; k < shape.k; ++k) {
    for (uint64_t n = 0; n < shape.n; ++n) {
      matrix[k * shape.n + n] = static_cast<int8_t>(codes[n * shape.k + k]);
    }
  }
  return matrix;
}

// Our bytes in the form `desc`, on every CPU, against `theirs`.
void CheckPacked(const Shape& shape, const Probe& probe, const BlockedDesc& desc,
                 const std::vector<std::byte>& theirs) {
  PackRequest request = W8A8Request(shape);
  request.weights_desc = desc;
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    INFO(IsaName(isa));
    CHECK((PackWhole(kOneDnnW8A8, request, probe, PartRole::kWeight) == theirs));
  }
}

bool HasOneBlock(const BlockedDesc& desc) {
  return desc.padded_dims[0] == desc.Block(0) && desc.padded_dims[1] == desc.Block(1);
}

TEST_CASE("int8 weights in every form that oneDNN has a name for are what its reorder writes") {
  OneDnn onednn;
  std::set<std::string> compared;
  for (const NamedTag& tag : kTags) {
    for (const Shape& shape : kShapes) {
      INFO(tag.name << " K " << shape.k << " N " << shape.n);
      const memory::desc wanted = Tagged(shape, tag.tag);
      const Probe probe = RandomCodes(shape);
      const std::vector<std::byte> theirs =
          onednn.Reordered(Transposed(shape, probe.codes), memory::data_type::s8, wanted);
      if (theirs.empty()) continue;
      const BlockedDesc desc = Value(WeightsDescOf(FieldsOf(wanted), shape.k, shape.n));
      CHECK_FALSE(desc.s8s8_compensation);
      // A single block has no order: both names are right.
      if (!HasOneBlock(desc)) CHECK(desc.Name() == tag.name);
      CheckPacked(shape, probe, desc, theirs);
      compared.insert(tag.name);
    }
  }
  for (const std::string& name : kNeededTags) {
    INFO(name);
    CHECK(compared.contains(name));
  }
}

constexpr const char* kDynamic = "onednn_w8a8_dyn-sym-n100-k70.safetensors";
constexpr const char* kStaticAsymmetric = "onednn_w8a8_static-asym-n33-k129.safetensors";

// Nothing public makes a descriptor with sums behind the weights but the primitives of CPUs that
// want them. The golden files hold such descriptors as oneDNN itself wrote them down. What sets
// them apart from the same form without sums does not depend on shape or blocks: it is carried over
// to others, and the queries then have to find the sums in the size.
class Sums {
 public:
  explicit Sums(const std::string& name) {
    const GoldenFile golden(Fixture("golden/" + name));
    const Shape shape = {golden.k(), golden.n()};
    const std::vector<uint8_t> with = golden.Values<uint8_t>("packed.memory_desc");
    const std::vector<uint8_t> without = Tagged(shape, memory::format_tag::BA16a64b4a).get_blob();
    REQUIRE(with.size() == without.size());
    for (size_t i = 0; i < with.size(); ++i) {
      if (with[i] != without[i]) changed_.emplace_back(i, with[i]);
    }
  }

  // The same form with the sums of the golden file.
  memory::desc AddedTo(memory::desc desc) const {
    std::vector<uint8_t> blob = desc.get_blob();
    for (const auto& [place, value] : changed_) blob[place] = value;
    return memory::desc(blob);
  }

 private:
  std::vector<std::pair<size_t, uint8_t>> changed_;
};

// The descriptors in the golden files are those of 3.13, which are opaque.
bool ReadsGoldenDescriptors() {
  const dnnl_version_t& version = *dnnl_version();
  if (version.major == 3 && version.minor == 13) return true;
  WARN("oneDNN " << version.major << "." << version.minor
                 << " cannot read descriptors of 3.13: sums are not compared with its reorders");
  return false;
}

TEST_CASE("the golden descriptors are the default form, and oneDNN writes the golden bytes here") {
  if (!ReadsGoldenDescriptors()) return;
  OneDnn onednn;
  size_t files = 0;
  for (const auto& path : GoldenFiles()) {
    const GoldenFile golden(path);
    if (golden.layout() != kOneDnnW8A8.id) continue;
    INFO(path.filename());
    const Shape shape = {golden.k(), golden.n()};
    const memory::desc theirs(golden.Values<uint8_t>("packed.memory_desc"));
    const OneDnnFields fields = FieldsOf(theirs);
    const BlockedDesc ours = DefaultW8A8Desc(golden.Request());
    CHECK(ours.Name() == "BA16a64b4a");
    if (ours.zero_point_compensation) {
      OneDnnFields symmetric = fields;
      symmetric.bytes -= ours.padded_dims[1] * sizeof(int32_t);
      CHECK(Value(WeightsDescOf(fields, symmetric, shape.k, shape.n)) == ours);
    } else {
      CHECK(Value(WeightsDescOf(fields, shape.k, shape.n)) == ours);
    }
    const std::vector<std::byte> bytes =
        onednn.Reordered(Transposed(shape, golden.Panel()), memory::data_type::s8, theirs);
    CHECK((bytes == golden.At("packed.weight").bytes));
    ++files;
  }
  CHECK(files == 10);
}

TEST_CASE("int8 weights with sums behind them are what oneDNN's reorder writes") {
  if (!ReadsGoldenDescriptors()) return;
  const bool zero_points = GENERATE(false, true);
  const Sums sums(zero_points ? kStaticAsymmetric : kDynamic);
  OneDnn onednn;
  std::set<std::string> compared;
  for (const NamedTag& tag : kTags) {
    for (const Shape& shape : kShapes) {
      INFO(tag.name << " K " << shape.k << " N " << shape.n << (zero_points ? " zero points" : ""));
      const memory::desc plain = Tagged(shape, tag.tag);
      const memory::desc wanted = sums.AddedTo(plain);
      const Probe probe = RandomCodes(shape);
      const std::vector<std::byte> theirs =
          onednn.Reordered(Transposed(shape, probe.codes), memory::data_type::s8, wanted);
      if (theirs.empty()) continue;
      BlockedDesc desc = Value(WeightsDescOf(FieldsOf(plain), shape.k, shape.n));
      desc.s8s8_compensation = true;
      desc.zero_point_compensation = zero_points;
      const uint64_t row = desc.padded_dims[1] * sizeof(int32_t);
      CHECK(wanted.get_size() == plain.get_size() + (zero_points ? 2 : 1) * row);
      CheckPacked(shape, probe, desc, theirs);
      compared.insert(tag.name);
    }
  }
  for (const char* name : {"BA16a16b4a", "BA16a32b4a", "BA16a48b4a", "BA16a64b4a"}) {
    INFO(name);
    CHECK(compared.contains(name));
  }
}

// The form as oneDNN's own descriptor; nothing where there is no public way to make it.
std::optional<memory::desc> DescriptorOf(const Shape& shape, const BlockedDesc& desc) {
  const auto* const tag = std::ranges::find_if(
      kTags, [&desc](const NamedTag& candidate) { return candidate.name == desc.Name(); });
  REQUIRE(tag != std::end(kTags));
  const memory::desc plain = Tagged(shape, tag->tag);
  if (!desc.s8s8_compensation && !desc.zero_point_compensation) return plain;
  if (!desc.s8s8_compensation || !ReadsGoldenDescriptors()) return std::nullopt;
  return Sums(desc.zero_point_compensation ? kStaticAsymmetric : kDynamic).AddedTo(plain);
}

TEST_CASE("int8 weights as the primitive asks for them here are what oneDNN's reorder writes") {
  OneDnn onednn;
  for (const auto& [dynamic, symmetric] : {std::pair{true, true}, std::pair{true, false},
                                           std::pair{false, true}, std::pair{false, false}}) {
    for (const Shape& shape : kShapes) {
      INFO("K " << shape.k << " N " << shape.n << " dynamic " << dynamic << " symmetric "
                << symmetric);
      PackRequest request = W8A8Request(shape);
      request.scheme.activations.dynamic = dynamic;
      request.scheme.activations.symmetric = symmetric;
      const BlockedDesc desc = Value(AskOneDnn(request)).weights_desc;
      const std::optional<memory::desc> wanted = DescriptorOf(shape, desc);
      if (!wanted) continue;
      const Probe probe = RandomCodes(shape);
      CheckPacked(shape, probe, desc,
                  onednn.Reordered(Transposed(shape, probe.codes), memory::data_type::s8, *wanted));
    }
  }
}

// oneDNN 3.13 has reorders to int4 that run and write nothing; the one from f32 works.
TEST_CASE("4-bit weights are what oneDNN's reorder writes") {
  const bool symmetric = GENERATE(true, false);
  const memory::data_type type = symmetric ? memory::data_type::s4 : memory::data_type::u4;
  OneDnn onednn;
  for (const Shape& shape : kShapes) {
    if (shape.n % 2 != 0) continue;
    INFO("K " << shape.k << " N " << shape.n << (symmetric ? " symmetric" : " asymmetric"));
    PackRequest request;
    request.scheme = {
        .granularity = Granularity::kChannel, .group_size = shape.k, .symmetric = symmetric};
    request.n = shape.n;
    request.k = shape.k;
    REQUIRE(kOneDnnW4A16.eligible(request).ok);
    SplitMix64 random(shape.k + shape.n);
    const Probe probe = MakeProbe(request, random);
    std::vector<float> matrix(shape.k * shape.n);
    for (uint64_t k = 0; k < shape.k; ++k) {
      for (uint64_t n = 0; n < shape.n; ++n) {
        const int code = PanelCode(CodeType::kU4, probe.codes, shape.k, n, k);
        matrix[k * shape.n + n] = static_cast<float>(symmetric ? code - 8 : code);
      }
    }
    const std::vector<std::byte> theirs = onednn.Reordered(
        matrix, memory::data_type::f32, memory::desc(Dims(shape), type, memory::format_tag::ab));
    for (const Layout* layout : {&kOneDnnW4A16, &kOneDnnW4A8}) {
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        INFO(layout->id << " " << IsaName(isa));
        CHECK((PackWhole(*layout, request, probe, PartRole::kWeight) == theirs));
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
