#include "backend/cuda/dnn.h"
const char *wb__dnn_attention_problem(const wb__step *step, wb__dnn_problem *p){(void)step;(void)p;return "cuDNN: no attention";}
void wb__dnn_attention(wb__dnn_graph *g, const wb__dnn_problem *p){(void)g;(void)p;}
