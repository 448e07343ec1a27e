/* Allreduce of float32 sums by MPI: mpi_allreduce BYTES COUNT. Rank 0 prints the median of the iterations in seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	if (argc != 3) {
		fprintf(stderr, "usage: mpi_allreduce BYTES COUNT\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int n = atoi(argv[1]) / 4, count = atoi(argv[2]), rank;
	float *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
	double *took = calloc(count, sizeof *took);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < 2; i++)
		MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < count; i++) {
		double at = MPI_Wtime();
		MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		took[i] = MPI_Wtime() - at;
	}
	qsort(took, count, sizeof *took, compare);
	if (rank == 0)
		printf("%.9f\n", took[count / 2]);
	MPI_Finalize();
	return 0;
}
