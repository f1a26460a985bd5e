#pragma once

// Names and numbers of the GGUF container, as ggml writes them.

#include <cstdint>
#include <string>
#include <string_view>

namespace prepack::gguf {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr uint32_t kOldestVersion = 2;  // version 1 counts in 32 bits
inline constexpr uint32_t kNewestVersion = 3;
inline constexpr uint32_t kDefaultAlignment = 32;  // without general.alignment
inline constexpr uint64_t kMaxKeyBytes = 65'535;
inline constexpr uint64_t kMaxTensorNameBytes = 63;  // ggml keeps 64 bytes, the last of them zero

inline constexpr std::string_view kArchitecture = "general.architecture";
inline constexpr std::string_view kName = "general.name";
inline constexpr std::string_view kAlignment = "general.alignment";
// The hash of the manifest that prepack wrote beside the file.
inline constexpr std::string_view kManifestHash = "general.prepack.manifest";
inline constexpr uint64_t kManifestHashDigits = 32;
inline constexpr std::string_view kSplitNo = "split.no";  // of this file, from 0
inline constexpr std::string_view kSplitCount = "split.count";
inline constexpr std::string_view kSplitTensors = "split.tensors.count";  // of all files together
inline constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

// Behind the name of the architecture: "llama" + kBlockCount.
inline constexpr std::string_view kBlockCount = ".block_count";
inline constexpr std::string_view kEmbeddingLength = ".embedding_length";
inline constexpr std::string_view kFeedForwardLength = ".feed_forward_length";
inline constexpr std::string_view kVocabSize = ".vocab_size";

inline constexpr std::string_view kTokenEmbedding = "token_embd.weight";
inline constexpr std::string_view kBlockPrefix = "blk.";

// "model-00001-of-00003.gguf": the file `no`, from 0, of `count`.
std::string SplitName(std::string_view stem, uint64_t no, uint64_t count);

}  // namespace prepack::gguf
