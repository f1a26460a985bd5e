#ifndef ONEDNN_CONSUMER_WANTED_FORM_H_
#define ONEDNN_CONSUMER_WANTED_FORM_H_

#include <dnnl.hpp>

#include "weights_form.h"

// The form in which a primitive wants its weights, from oneDNN's queries. None of them tells what
// the sums behind the elements are, so they are seen in the size: `without_zero_points` is what the
// same primitive wants when its inputs have no zero points. Throws Refusal for a form that plain
// fields cannot say.
WeightsForm WantedForm(const dnnl::memory::desc& wanted,
                       const dnnl::memory::desc& without_zero_points);

#endif  // ONEDNN_CONSUMER_WANTED_FORM_H_
