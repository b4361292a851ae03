/* Processes that find each other as those of `weber launch` do. */
#ifndef RANK_PROCESSES_H
#define RANK_PROCESSES_H

/* Runs this program `processes` times with the arguments "child", how, devices, and waits for all.
 * Their output becomes `text`, one after the other.  Returns the number of those that fail. */
int run_processes(int processes, const char *how, const char *devices, char text[8192]);

#endif
