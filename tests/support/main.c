/* The main of the programs of tests that have none. */
#include "test.h"

int main(void) { return run_all_cases(); }
