"""Scores the answers of a model that knows nothing of coordinate tokens: Qwen3-VL's JSON."""

from coord_eval import parse_answer, score

truth = {  # COCO's format; or the path of an instances.json
    "images": [
        {"id": 1, "file_name": "kitchen.jpg", "width": 640, "height": 480},
        {"id": 2, "file_name": "park.jpg", "width": 640, "height": 480},
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [64, 48, 256, 192]},
        {"id": 2, "image_id": 2, "category_id": 2, "bbox": [160, 96, 320, 288]},
    ],
}
whole = 'Here it is:\n[{"bbox_2d": [100, 100, 500, 500], "label": "Cat"}]'
cut = '[{"bbox_2d": [250, 200, 750, 800], "label": "dog"}, {"bbox_2d": [10, 20'
answers = [
    {"image_id": 1, "text": whole, "finish_reason": "stop"},
    {"image_id": 2, "text": cut, "finish_reason": "length"},
]
answer = parse_answer(cut, scale=1000)  # Qwen3-VL writes thousandths of the image
print(answer.format, answer.objects[0].box)  # json (0.25, 0.2, 0.75, 0.8)
print([drop.reason for drop in answer.dropped])  # ['truncated']
evaluation = score(truth, answers, scale=1000)
print(round(evaluation.coco["AP"], 3), evaluation.mean_iou)  # 1.0 1.0
print(evaluation.format["truncated"], "of", evaluation.format["answers"])  # 1 of 2
evaluation.write_report("report")  # report/evaluation.json and report/report.html
