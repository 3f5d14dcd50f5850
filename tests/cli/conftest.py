from cli.run.run_stand_in import driver  # noqa: F401
