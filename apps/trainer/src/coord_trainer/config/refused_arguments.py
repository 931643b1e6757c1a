"""The arguments of ms-swift's SFT that `training:` does not take, and why: by name, or by families of names.

A name by itself comes before a family (`hub_token` before `hub_*`), so each argument has one reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

OWNED: Mapping[str, str] = {
    "custom.coord_tokens.skip_bbox_norm": "norm_bbox",
    "data.annotations": "dataset",
    "data.heldout_annotations": "split_dataset_ratio val_dataset",
    "data.markers and data.style": "template",
    "data.max_pixels": "max_pixels",
    "data.packing": "packing padding_free",
    "data.strict": "strict",
    "evaluation.max_new_tokens": "max_new_tokens",
    "model.attention": "attn_impl",
    "model.download": "check_model",
    "model.dtype": "bf16 fp16 torch_dtype",
    "model.path": "model model_type",
    "run.dir": "add_version logging_dir output_dir",
    "run.resume": "resume_from_checkpoint",
    "run.seed": "data_seed seed",
}
"""Keys of the configuration, and the arguments that each of them sets."""

REFUSED: Mapping[str, str] = {
    "tuner_type is full or lora (with DoRA), which prediction and the exporter can read": (
        "adalora_* adapter_* boft_* fourier_* llamapro_* reft_* vera_*"
    ),
    "it would change the base weights, which the base on disk does not have when the adapter is loaded": ("lora_ga_*"),
    "GaLore and LISA regroup parameters without regard to the offsets; use tuner_type lora to save "
    "memory": "galore_* lisa_* use_galore optim_target_modules",
    "adapters are PEFT's": "tuner_backend use_swift_lora",
    "Qwen3-VL's dense models have no weights outside of layers; name these in target_modules": ("target_parameters"),
    "Qwen3-VL's dense models have no experts": "experts_impl",
    "none of the optimizers that training.optim and training.optimizer offer takes any": "optim_args",
    "prediction and the exporter load the base with the weights that it has on disk; use deepspeed or "
    "gradient_checkpointing to save memory": "hqq_axis",
    "it matters to FSDP alone, with which 4 bits were not tried": "bnb_4bit_quant_storage",
    "accelerate shards with FSDP on GPUs only, where it was not tried, and saves shards that prediction"
    " and export cannot open; shard with deepspeed (zero2, zero3)": "fsdp*",
    "the objective needs whole rows and a whole head; shard with deepspeed": (
        "deepspeed_autotp_size sequence_parallel_size"
    ),
    "the head is replaced around each step, which a compiled graph would not see": "torch_compile*",
    "the supervised rows alone are computed; model.fused_head chooses how": "use_logits_to_keep",
    "the loss is the run's own objective, which this would not reach; its terms and weights are set "
    "under custom": "*loss_scale *_loss loss_type mrl_dims router_aux_loss_coef",
    "the loss is the run's own objective, which this would not reach; set "
    "custom.coord_objective.label_smoothing": "label_smoothing_factor",
    "denominators are always those of the global batch": "average_tokens_across_devices",
    "a loss that is not finite stops the run": "logging_nan_inf_filter",
    "metrics are the objective's own terms, and scores come from evaluation": "acc_strategy eval_metric",
    "evaluation during training gives losses alone, in the precision of training; scores come from evaluation": (
        "*_full_eval batch_eval_metrics eval_accumulation_steps eval_do_concat_batches "
        "eval_use_gather_object include_for_metrics label_names prediction_loss_only"
    ),
    "answers are generated after training, as evaluation.decoding and evaluation.limit say": (
        "ds3_gather_for_generation eval_dataset* eval_limit eval_use_evalscope extra_eval_args "
        "*generation_* *logprobs num_beams predict_with_generate repetition_penalty sortish_sampler "
        "stop_words stream structured_outputs_regex temperature top_k top_p"
    ),
    "a run always trains, and evaluation.images says what is answered then": "do_*",
    "the task is always the writing of answers": "num_labels problem_type task_type",
    "the last checkpoint on disk is answered and scored, with evaluation.ap_steps the best one": (
        "load_best_model_at_end"
    ),
    "samples are read from data.annotations by the trainer itself, which this would not reach": (
        "cached_* columns custom_dataset_info dataset_* decision_* disable_auto_column_mapping "
        "download_mode interleave_prob load_from_cache_file model_author model_name shuffle_buffer_size "
        "stopping_strategy streaming val_dataset_shuffle"
    ),
    "samples are the run's own and have no columns; train_dataloader_shuffle chooses between shuffled "
    "and given order": "group_by_length length_column_name remove_unused_columns train_sampling_strategy",
    "samples are encoded once and kept where they are the same in every epoch and fit into memory, else"
    " when they are needed": "lazy_tokenize",
    "data.packing puts a rank's whole batch into one row; its length follows from "
    "per_device_train_batch_size": "packing_*",
    "image sizes are set by data.min_pixels and data.max_pixels": "model_kwargs",
    "the conversation is the checkpoint's chat template around data.prompt, in training and in prediction alike": (
        "*_thinking *_thinking_prefix agent_template disable_ignore_empty_think response_prefix "
        "template_backend use_chat_template"
    ),
    "batches are made by ms-swift's own loader, which this would not reach": (
        "accelerator_config dataloader_in_order parallelism_config"
    ),
    "resuming and the recorded digests need one batch size; set per_device_train_batch_size": ("auto_find_batch_size"),
    "a run starts from model.path; merge the adapter into it first (uv run apps/exporter merge), or "
    "continue with run.resume": "adapters load_args load_data_args",
    "a run is resumed exactly, from complete checkpoints that save_steps writes; see run.resume": (
        "enable_jit_checkpoint ignore_data_skip restore_callback_states_from_checkpoint resume_only_model"
        " use_flash_ckpt"
    ),
    "checkpoints are safetensors files, which resuming and the exporter read": "safe_serialization",
    "a checkpoint must be complete; nothing is initialised at random": "init_strategy",
    "it would not be in the base that an adapter is loaded on; change the checkpoint's config.json": (
        "max_model_len rope_scaling"
    ),
    "model.path is the checkpoint; download another revision into a folder and name that": "model_revision",
    "the checkpoint's vocabulary is used as it is; uv run apps/exporter expand-vocab adds tokens": (
        "new_special_tokens"
    ),
    "training never keeps a cache": "use_cache",
    "ranks are started by torchrun": "device_groups ray_* use_ray",
    "torchrun sets it": "local_rank",
    "each rank has one device, and holds the model or DeepSpeed's share of it": "device_map max_memory",
    "nccl is used on GPUs and gloo on the CPU": "ddp_backend",
    "the GPU is used where there is one; CUDA_VISIBLE_DEVICES= hides it": "use_cpu",
    "it concerns hardware that the trainer does not support": "enable_npu_model_patch",
    "a configuration never names code to execute": "custom_register_path external_plugins local_repo_path",
    "callbacks are the run's own; early_stop_interval stops early": "callbacks",
    "the console is the trainer's own, and messages of the libraries go to swift.log; run.profile "
    "measures steps and memory": "debug disable_tqdm log_level* log_on_each_node skip_memory_metrics",
    "a wrong argument is always an error": "ignore_args_error",
    "a run sends nothing away; upload its checkpoint or export afterwards": "hub_* push_to_hub",
    "a token would be written into the run folder; set the environment variable HF_TOKEN": "hub_token",
    "Trackio is not supported; report_to takes tensorboard, wandb, mlflow or swanlab": "project trackio_*",
    "a run sends no messages; SwanLab gets the curves and the configuration": "swanlab_*",
    "the configuration is written into the run folder, which should hold no secrets; set "
    "SWANLAB_API_KEY in the environment": "swanlab_token",
}
"""Reasons, and the names and families (`*`) that are refused for each: these arguments would have no effect, or break
a promise of the trainer."""


def refusal(name: str) -> str | None:
    """Return why an argument is not taken, as the end of a sentence that begins with its name; None for any other."""
    if name in OWNED_NAMES:
        return f"is set by {OWNED_NAMES[name]}; set it there"
    reasons = [REFUSED_NAMES[name]] if name in REFUSED_NAMES else refused_families(name)
    return f"is not supported: {reasons[0]}" if reasons else None


def refused_families(name: str) -> list[str]:
    """Return the reason of each family that a name belongs to."""
    return [reason for family, reason in REFUSED_NAMES.items() if "*" in family and fnmatchcase(name, family)]


def _by_name(names_of: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in names_of.items() for name in names.split()}


OWNED_NAMES = _by_name(OWNED)
REFUSED_NAMES = _by_name(REFUSED)
