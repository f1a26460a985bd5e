// What llama.cpp computes with a GGUF file, for tests/llama/compare: the logits behind a fixed
// prompt, then the tokens that it would go on with, one line of numbers each.

#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

constexpr int kPrompt = 24;
constexpr int kTokens = 12;

// Decodes the tokens and returns the logits behind the last one.
std::vector<float> Decode(llama_context* context, std::vector<llama_token> tokens, int vocabulary) {
  const llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()));
  if (llama_decode(context, batch) != 0) return {};
  const float* logits = llama_get_logits_ith(context, -1);
  return {logits, logits + vocabulary};
}

llama_context* Open(const char* path, int& vocabulary) {
  llama_model* model = llama_model_load_from_file(path, llama_model_default_params());
  if (model == nullptr) return nullptr;
  vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = 64;
  parameters.n_threads = 1;
  parameters.n_threads_batch = 1;
  return llama_init_from_model(model, parameters);
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  int vocabulary = 0;
  llama_context* context = argc == 2 ? Open(argv[1], vocabulary) : nullptr;
  if (context == nullptr) {
    std::fprintf(stderr, "logits: llama.cpp does not load the file\n");
    return 1;
  }
  std::vector<llama_token> tokens;
  for (int i = 0; i < kPrompt; ++i) tokens.push_back((7 * i + 3) % vocabulary);
  std::vector<int> said;
  for (int step = 0; step < kTokens; ++step) {
    const std::vector<float> logits = Decode(context, tokens, vocabulary);
    if (logits.empty()) return 1;
    for (const float logit : logits) {
      if (step == 0) std::printf("%.9g ", static_cast<double>(logit));
    }
    tokens = {static_cast<llama_token>(std::ranges::max_element(logits) - logits.begin())};
    said.push_back(tokens.front());
  }
  std::printf("\n");
  for (const int token : said) std::printf("%d ", token);
  std::printf("\n");
  return 0;
}
