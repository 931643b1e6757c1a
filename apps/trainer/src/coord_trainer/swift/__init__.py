"""The interface to ms-swift: a `RunConfig` goes in, a trained checkpoint comes out.

Only this folder imports swift and uses private names of swift, of transformers' trainer and of peft; the rest of the
trainer calls `open_run`. The table below lists these names: name, what it is used for | what fails without it.
`doctor` and a test parse the table and check each row against the installed packages (ms-swift 4.6, transformers 5.19,
peft 0.20).

Notation: `module:name` exists; `(a, b)` it takes these parameters; `["k"]` it has this key; `#name` is set on
instances; `{"k"}` its source code handles this key.

Pipeline and arguments:
    swift.arguments:SftArguments(model, model_type, dataset, val_dataset, torch_dtype, attn_impl, tuner_type, strict)
        holds the run's settings under swift's names | no pipeline can be made
    swift.arguments:SftArguments(modules_to_save, target_modules, use_dora, use_liger_kernel)
        checked and extended when offsets are installed | offsets are neither trained nor saved
    swift.arguments:SftArguments{"TENSORBOARD_LOGGING_DIR"}
        set for each run, since swift keeps the first value | TensorBoard's file is in another run's folder
    swift.arguments:SftArguments#training_args
        resuming and data workers are set on it before training | every run starts anew, in one process
    swift.pipelines.train.sft:SwiftSft._prepare_dataset()
        replaced: our own data sets | swift reads, sorts corners as strings and replaces failing samples at random
    swift.pipelines.train.sft:SwiftSft._prepare_model_tokenizer(kwargs)
        extended: a model on the meta device for the dry run | `train --dry-run` needs the weights
    swift.model.register:get_model_processor(return_dummy_model)
        a model without weights | `train --dry-run` needs the weights
    swift.pipelines.train.sft:SwiftSft._get_trainer_kwargs()
        replaced: passes objective and callbacks to our trainer | the trainer has no objective
    swift.pipelines.train.sft:SwiftSft.prepare_model(args, model, template)
        puts LoRA or DoRA on the model for the dry run | `train --dry-run` shows wrong parameters
    swift.pipelines.train.sft:SwiftSft._save_trainer_state{"last_model_checkpoint", "global_step", "tensorboard"}
        the result of `main`; extended: draws no plots | the checkpoint to generate answers with is unknown
    swift.trainers:TrainerFactory.TRAINER_MAPPING["causal_lm"]
        replaced: our trainer | swift trains its own cross-entropy
    swift.optimizers:optimizers_map["default"]
        replaced: the same groups, and those of the offsets apart | offsets have no learning rates of their own
    swift.optimizers:optimizers_map["lorap"]
        replaced: the same groups, and those of the offsets apart | offsets have no learning rates of their own
    swift.optimizers:optimizers_map["multimodal"]
        replaced: the same groups, and those of the offsets apart | offsets have no learning rates of their own
    swift.optimizers:optimizers_map["muon"]
        replaced: our Muon | swift downloads code from GitHub and runs it
    swift.optimizers.base:OptimizerCallback.create_optimizer(model)
        extended: Muon uses the groups of swift's AdamW | training.optimizer: muon is not available
    swift.optimizers.base:OptimizerCallback#trainer
        holds the model | training.optimizer: muon is not available
    swift.optimizers.multimodal:MultimodalOptimizerCallback.create_optimizer(model)
        extended: moves offsets into groups of their own | offsets have no learning rates of their own
    swift.optimizers.lorap:LorapOptimizerCallback.create_optimizer(model)
        extended: moves offsets into groups of their own | offsets have no learning rates of their own
    swift.optimizers.multimodal:MultimodalOptimizerCallback#trainer
        holds the model and the offsets' settings | offsets have no learning rates of their own
Model and template:
    swift.model:register_model(model_meta)
        adds our model entry | swift's `qwen3_vl` would run code from a checkpoint
    swift.model.model_arch:MultiModelKeys(arch_name)
        the name of the arrangement of a model's parts | no model entry can be registered
    transformers.models.qwen3_vl.modeling_qwen3_vl:Qwen3VLModelOutputWithPast
        ms-swift's loader imports it | Qwen3-VL cannot be loaded
    swift.model:ModelLoader.default_trust_remote_code
        set to False in each family's loader | code from a checkpoint is executed
    swift.utils:safe_snapshot_download(model_id_or_path, download_model, use_hf)
        downloads a checkpoint before anything of it is read | the config of a hub id may execute code
    swift.template:register_template(template_meta)
        adds our template | swift's hard-coded image ids are used
    swift.template.template_meta:TemplateMeta(template_type, template_cls, default_system, stop_words)
        replaced in that copy | no samples can be encoded
    swift.template.template_meta:TemplateMeta(non_thinking_prefix)
        the same: what begins an answer without thoughts | models that think are trained and asked differently
    swift.template:Template.init_processor(processor)
        extended: image ids from the model's config | placeholders of another vocabulary stay unexpanded
    swift.template:Template#config
        the model's config, with those ids | placeholders of another vocabulary stay unexpanded
    swift.template:Template.load_images
        set to True: opens images for our image processor | images are resized by another library
    swift.template:Template.normalize_bbox(inputs)
        replaced: boxes are coordinate tokens already | boxes are scaled twice
    swift.template:Template.replace_tag(media_type, index, inputs)
        replaced: the image's tokens without resizing | images are resized by another library
    swift.template:Template._encode(inputs)
        extended: uses the checkpoint's own image processor | training and inference resize differently
    swift.template:Template._truncate(input_ids, labels, encoded, truncation_strategy)
        extended: token types of what is kept | samples that are cut off have more token types than tokens
    swift.template:Template.placeholder_tokens
        set to the family's image token, of each checkpoint anew | truncation may cut an image in two
    transformers:ProcessorMixin.replace_image_token(image_inputs, image_idx)
        the tokens of an image | images and text do not line up
    transformers:Qwen3VLProcessor._get_num_multimodal_tokens(image_sizes)
        the number of these tokens without opening the image | too long samples are found during training only
    transformers:ProcessorMixin.valid_processor_kwargs
        how the processor calls its image processor | InternVL3 is trained on one tile of each image
    swift.template:Template#max_length
        the limit for the lengths of samples, checked before training | too long samples are found during training only
    swift.arguments:SftArguments(truncation_strategy)
        the side on which long samples are cut off | the console does not report what is cut off
    swift.template:Template.encode(inputs, return_length)
        encodes a conversation as ids, labels and pixels | no samples can be encoded
    swift.template:Template.data_collator(batch)
        pads samples to a batch, to which our collator adds object slots | no batches can be made
Trainer:
    swift.trainers:Seq2SeqTrainer.compute_loss(model, inputs, return_outputs, num_items_in_batch)
        replaced: computes the objective on supervised rows | swift's cross-entropy is trained
    swift.trainers:Seq2SeqTrainer.compute_loss{"compute_loss_func", "loss_scale", "text_position_ids", "channel"}
        keys that swift adds to a batch and the model does not accept | the forward pass fails on unknown arguments
    swift.trainers:Seq2SeqTrainer.get_use_logits_to_keep(default_value)
        replaced: returns False, since the row head selects the rows | one index is kept for the whole batch
    swift.trainers:Seq2SeqTrainer._get_data_collator(args, template)
        extended: adds object slots to the batch | box losses have no boxes
    swift.trainers:Seq2SeqTrainer.get_eval_dataloader(eval_dataset)
        replaced on several ranks: evaluates each sample once | evaluation counts some samples twice
    swift.dataloader:BatchSamplerShard(total_samples, batch_size, shuffle, drop_last, data_seed)
        a rank's share of the evaluation | evaluation counts some samples twice
    swift.dataloader:DataLoaderShard(dataset, device)
        its batches, on the rank's device | evaluation counts some samples twice
    transformers:Trainer._get_num_items_in_batch(batch_samples, device)
        replaced: counts denominators of the global batch | accumulated batches weigh tokens differently
    transformers:Trainer._save_checkpoint(model, trial)
        extended: writes the manifest of files last | a resume may read an incomplete checkpoint
    transformers.integrations:TensorBoardCallback#tb_writer
        the writer that takes images with their boxes | TensorBoard shows no images
    transformers:Trainer._determine_best_metric(metrics, trial)
        extended: ignores failed evaluations | a failed evaluation ends training
    transformers:Trainer.evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        replaced: computes losses and scores of answers, and survives failures | a failed evaluation ends training
    transformers:Trainer.prediction_step(model, inputs, prediction_loss_only)
        evaluates one batch | evaluation losses cannot be computed
    transformers:Trainer._load_optimizer_and_scheduler(checkpoint)
        extended: restores the sums of the log line | the first log line after a resume differs
    transformers:Trainer.log(logs)
        extended: logs every loss term, over all ranks | metrics.jsonl holds only swift's values
    transformers:Trainer#is_deepspeed_enabled
        whether accelerate uses DeepSpeed | a run that silently lacks DeepSpeed is not detected
    transformers:Trainer#optimizer_cls_and_kwargs
        set to None, to create an optimizer without a trainer | `train --dry-run` shows no learning rates
    transformers.trainer_utils:PREFIX_CHECKPOINT_DIR
        the name of a checkpoint's folder | checkpoints cannot be marked complete
    transformers.trainer_utils:rotate_checkpoints(output_dir, save_total_limit, best_model_checkpoint)
        deletes older checkpoints after the new one is complete | a killed run may be left without a checkpoint
    transformers.integrations.deepspeed:unset_hf_deepspeed_config()
        ends DeepSpeed's sharded loading | the model for generation is loaded in shards
PEFT:
    peft.utils:ModulesToSaveWrapper#modules_to_save
        the trained copy of a head | the frozen head is used for the loss
    peft.utils:ModulesToSaveWrapper.active_adapters
        names the copy in use | the frozen head is used for the loss
"""
