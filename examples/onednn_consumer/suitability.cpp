#include "suitability.h"

#include "onednn_here.h"
#include "refusal.h"

namespace {

void Require(bool suits, const PackedFolder& folder, const Module& module, const std::string& what,
             const std::string& found, const std::string& expected) {
  if (suits) return;
  throw Refusal(Exit::kUnavailable, folder.path + ": module " + module.name + ": " + what +
                                        " (found " + found + ", expected " + expected +
                                        "). Pack again on this machine: " + folder.rebuild);
}

}  // namespace

void CheckOrigin(const PackedFolder& folder, const Module& module) {
  if (!module.origin) return;  // a form that does not come from a oneDNN
  Require(module.origin->version == OneDnnVersion(), folder, module,
          "it was packed for another version of oneDNN", module.origin->version, OneDnnVersion());
  Require(module.origin->isa == OneDnnIsa(), folder, module,
          "it was packed for other instructions of the CPU", module.origin->isa, OneDnnIsa());
}

void CheckForm(const PackedFolder& folder, const Module& module, const MatmulDescription& matmul) {
  Require(module.form == matmul.wanted, folder, module,
          "oneDNN wants its weights in another form here", module.form.ToString(),
          matmul.wanted.ToString());
}
