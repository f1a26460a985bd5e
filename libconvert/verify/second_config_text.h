#ifndef PREPACK_VERIFY_SECOND_CONFIG_TEXT_H_
#define PREPACK_VERIFY_SECOND_CONFIG_TEXT_H_

// config.json of the source against that of the packed folder, without a parser that convert uses:
// a mistake in that would change both alike.

#include <string>
#include <string_view>

namespace prepack {

// Every value outside of the declarations of the quantization must stand in both, in the same order
// and in the same characters. Empty: they do; else which does not.
std::string WhyConfigDiffers(std::string_view source, std::string_view packed);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_CONFIG_TEXT_H_
