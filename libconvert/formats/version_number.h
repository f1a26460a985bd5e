#ifndef PREPACK_FORMATS_VERSION_NUMBER_H_
#define PREPACK_FORMATS_VERSION_NUMBER_H_

#include <optional>
#include <string>
#include <string_view>

namespace prepack {

// The part of a quantizer's version that tells what it stored.
struct VersionNumber {
  unsigned major = 0;
  unsigned minor = 0;

  friend bool operator==(const VersionNumber&, const VersionNumber&) = default;
  bool IsBefore(const VersionNumber& other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
};

// Of "0.16.1", "7.3.4.dev1", "7"; nullopt when the text does not begin with a number.
std::optional<VersionNumber> ParseVersionNumber(std::string_view text);
std::string ShowVersion(const VersionNumber& version);

}  // namespace prepack

#endif  // PREPACK_FORMATS_VERSION_NUMBER_H_
