/* The mutex behind wb__data_lock, for those who wait on conditions under it: slots.c and feeder.c.
 */
#ifndef WB__DATA_LOCK_H
#define WB__DATA_LOCK_H

#include <pthread.h>

extern pthread_mutex_t wb__data_mutex;

#endif
