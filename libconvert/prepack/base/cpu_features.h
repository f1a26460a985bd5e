#pragma once

// What kernels of consumers ask of a CPU. (What our own packing kernels use is in isa.h.)

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace prepack {

enum class CpuFeature : uint8_t {
  kAvx2,     // and FMA
  kAvx512,   // F, BW, DQ and VL, which come together
  kVnni,     // of AVX-512
  kBf16,     // of AVX-512
  kVbmi,     // of AVX-512
  kFp16,     // of AVX-512
  kAvxVnni,  // VNNI for CPUs without AVX-512
  kAmxInt8,
  kAmxBf16,
  kAmxFp16,
  kAmxFp8,
  kAmd,      // made by AMD: what zentorch wants
  kDotprod,  // of Arm, as are all that follow: products of four bytes each (asimddp)
  kI8mm,     // products of matrices of bytes
  kArmBf16,
  kSve,
  kSme,
};

// A set of them.
class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> features) {
    for (const CpuFeature feature : features) Add(feature);
  }

  constexpr void Add(CpuFeature feature) { bits_ |= Bit(feature); }
  constexpr bool Has(CpuFeature feature) const { return (bits_ & Bit(feature)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  // Those of these that `others` has not.
  constexpr CpuFeatures Without(const CpuFeatures& others) const {
    CpuFeatures rest;
    rest.bits_ = bits_ & ~others.bits_;
    return rest;
  }
  constexpr CpuFeatures Common(const CpuFeatures& others) const {
    CpuFeatures common;
    common.bits_ = bits_ & others.bits_;
    return common;
  }

  friend constexpr bool operator==(const CpuFeatures&, const CpuFeatures&) = default;

 private:
  static constexpr uint32_t Bit(CpuFeature feature) {
    return uint32_t{1} << static_cast<unsigned>(feature);
  }

  uint32_t bits_ = 0;
};

struct CpuFeatureName {
  CpuFeature feature;
  std::string_view id;     // in JSON: "avx512"
  std::string_view name;   // for people: "AVX-512"
  std::string_view flags;  // of /proc/cpuinfo, all of which it takes, separated by spaces
  bool arm = false;        // a feature of Arm CPUs, not of x86
};

// In the order of the enumeration.
std::span<const CpuFeatureName> AllCpuFeatures();

// "AVX-512, VNNI"; "nothing".
std::string CpuFeaturesText(const CpuFeatures& features);

// What the kernel of Linux says that the CPU has: the words of a "flags" line ("Features" on Arm),
// and the vendor.
CpuFeatures CpuFeaturesOf(std::string_view flags, std::string_view vendor);

}  // namespace prepack
