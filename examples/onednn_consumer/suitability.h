#ifndef ONEDNN_CONSUMER_SUITABILITY_H_
#define ONEDNN_CONSUMER_SUITABILITY_H_

#include "matmul_description.h"
#include "packed_folder.h"

// A module is used only when its weights lie as the primitive of this machine wants them. Throws
// Refusal, with the command that makes a folder that does, when
//   - another oneDNN, or one with another CPU, was asked for the form when the folder was made,
//   - the stored form differs in any field from the one that is wanted here.
void CheckOrigin(const PackedFolder& folder, const Module& module);
void CheckForm(const PackedFolder& folder, const Module& module, const MatmulDescription& matmul);

#endif  // ONEDNN_CONSUMER_SUITABILITY_H_
