int wb__cli_new(int n, char **words);
int wb__cli_new(int n, char **words) { (void)n; (void)words; return -1; }
