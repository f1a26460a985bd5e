#ifndef ONEDNN_CONSUMER_LAYOUT_PARTS_H_
#define ONEDNN_CONSUMER_LAYOUT_PARTS_H_

// The parts that each layout has, as docs/layouts/ lists them.

#include <string>

#include "packed_folder.h"

// Checks dtype and shape of every part against [N, K] and the groups, and fills in the sizes in
// bytes. Throws Refusal for a part that is missing, unknown or not as it must be.
void CheckParts(Module& module, const std::string& where, const std::string& activation_dtype);

#endif  // ONEDNN_CONSUMER_LAYOUT_PARTS_H_
