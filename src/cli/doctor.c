int wb__cli_doctor(int n, char **words, const char *self);
int wb__cli_doctor(int n, char **words, const char *self) { (void)n; (void)words; (void)self; return -1; }
