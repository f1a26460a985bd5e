#ifndef ONEDNN_CONSUMER_ONEDNN_HERE_H_
#define ONEDNN_CONSUMER_ONEDNN_HERE_H_

#include <dnnl.hpp>
#include <string>

// The CPU, as oneDNN sees it. Intel's build of oneDNN reaches it through an OpenCL driver, which
// the environment must name before the first engine is made; this names the one that lies beside
// the library, unless the user has named another.
dnnl::engine MakeEngine();

std::string OneDnnVersion();  // "3.13.2"
std::string OneDnnIsa();      // "0x7": what it may use of this CPU

// Without VNNI, int8 products may be summed in 16 bits, which are too few for large ones.
bool SumsInt8Exactly();

#endif  // ONEDNN_CONSUMER_ONEDNN_HERE_H_
