from pyasynq.operations import OperationPreview, Targets

preview: OperationPreview
targets: Targets
