#pragma once

// Checkpoints that are made from the bytes of an input: sound ones at first, of any format.

#include "formats/checkpoint_builder.h"
#include "fuzz/fuzz_target.h"

namespace prepack::fuzz {

// A tiny checkpoint of one to three modules; format, shapes, widths and groups as the input has
// them.
testing::TestCheckpoint MakeCheckpoint(Input& input);

// Changes one thing of the checkpoint: a field of the config, or a tensor's name, type, shape or
// bytes.
void Damage(Input& input, testing::TestCheckpoint& checkpoint);

}  // namespace prepack::fuzz
